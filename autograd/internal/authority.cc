#include "sinew/autograd/internal/authority.h"

#include "absl/strings/str_format.h"

namespace sinew::internal {
namespace {

absl::Status refused(const WorkerInfo& from, std::string_view wish, std::string_view rule) {
  return absl::PermissionDeniedError(
      absl::StrFormat("worker '%s' may not %s: %s", from.name, wish, rule));
}

}  // namespace

absl::Status check_member(const WorkerInfo& from) {
  if (from.rank >= 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrFormat(
      "%s takes no part in autograd contexts: only workers that have joined the job do",
      from.name.empty() ? "a client" : absl::StrFormat("worker '%s'", from.name)));
}

absl::Status check_asks(const WorkerInfo& from, const PassId& pass) {
  if (absl::Status member = check_member(from); !member.ok()) return member;
  if (from.incarnation == pass.initiator) return absl::OkStatus();
  return refused(from, "ask to take part in this backward pass", "its initiator does");
}

absl::Status check_brings(const WorkerInfo& from, const PassId& pass, Answering answering,
                          Part part) {
  if (absl::Status member = check_member(from); !member.ok()) return member;
  const bool due = answering == Answering::kInSteps ? from.incarnation == pass.initiator
                                                    : part == Part::kTakesPart;
  if (due) return absl::OkStatus();
  return refused(from, "bring gradients of this backward pass",
                 answering == Answering::kInSteps ? "answers in steps are for its initiator"
                                                  : "it takes no part in the context");
}

absl::Status check_aborts(const WorkerInfo& from, const PassId& pass) {
  if (absl::Status member = check_member(from); !member.ok()) return member;
  if (from.incarnation == pass.initiator) return absl::OkStatus();
  return refused(from, "end this backward pass", "its initiator does");
}

bool may_end(const WorkerInfo& from, const autograd::ContextId& context, Part part) {
  return from.rank >= 0 && (from.incarnation == context.creator || part == Part::kTakesPart);
}

}  // namespace sinew::internal
