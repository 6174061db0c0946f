#include "sinew/rref/internal/ledger_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sinew::internal::ledger {

std::string to_text(const LiveReference& reference) {
  const auto name = [](std::string* out, const WorkerInfo& worker) {
    absl::StrAppend(out, describe(worker));
  };
  const std::string peers = absl::StrJoin(reference.peers, ", ", name);
  std::string text = absl::StrCat(
      describe(reference.rref), " of type '", reference.description.type_name, "' made at ",
      reference.description.creation_site.empty() ? "an unknown place"
                                                  : reference.description.creation_site,
      ": ");
  if (reference.role == Role::kOwner) {
    absl::StrAppend(&text, "owned here, ", reference.state, ", ", reference.local_handles,
                    " local handles, held by ", peers.empty() ? "no other worker" : peers);
  } else {
    absl::StrAppend(&text, describe(reference.fork), " owned by ", peers, ", ", reference.state,
                    ", ", reference.local_handles, " local handles, ", reference.pending_children,
                    " pending children");
  }
  return text;
}

}  // namespace sinew::internal::ledger
