#include "sinew/rref/internal/ledger_messages.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sinew::internal::ledger {

namespace {

// GlobalId's to_string is a hidden friend, found by argument-dependent lookup only.
template <class Id>
std::string text_of(const Id& id) {
  return to_string(id);
}

}  // namespace

const char* message_name(const LedgerMessage& message) {
  struct Name {
    const char* operator()(const Claim&) const { return "Claim"; }
    const char* operator()(const AddFork&) const { return "AddFork"; }
    const char* operator()(const ForkAdded&) const { return "ForkAdded"; }
    const char* operator()(const ForkRefused&) const { return "ForkRefused"; }
    const char* operator()(const ChildDone&) const { return "ChildDone"; }
    const char* operator()(const Delete&) const { return "Delete"; }
    const char* operator()(const AskClaim&) const { return "AskClaim"; }
    const char* operator()(const AskChild&) const { return "AskChild"; }
  };
  return std::visit(Name{}, message);
}

std::string describe(const RRefId& rref) { return absl::StrCat("reference ", text_of(rref)); }

std::string describe(const ForkId& fork) { return absl::StrCat("fork ", text_of(fork)); }

std::string describe(const RRefId& rref, const ForkId& fork) {
  return absl::StrCat(describe(rref), ", ", describe(fork));
}

std::string describe(const WorkerInfo& worker) {
  // Names may come from the network before anybody checked them.
  return absl::StrCat("worker '", absl::CHexEscape(worker.name.substr(0, 128)), "'");
}

}  // namespace sinew::internal::ledger
