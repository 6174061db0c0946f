#include "sinew/rpc/calls/retry_rules.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace sinew::internal {
namespace {

using std::chrono::nanoseconds;

// Errors that may pass by themselves. A mistake of the caller, or an exception of the method, would
// occur again. A timeout or a cancellation does not pass.
bool may_pass(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kResourceExhausted;
}

[[noreturn]] void throw_wrong(const char* field, const std::string& why) {
  throw RpcError(ErrorCode::kInvalidArgument, absl::StrFormat("RetryPolicy::%s %s", field, why));
}

}  // namespace

const RetryPolicy& checked(const RetryPolicy& policy) {
  if (policy.max_attempts < 1) {
    throw_wrong("max_attempts",
                absl::StrFormat("must be at least 1, it is %d", policy.max_attempts));
  }
  if (policy.first_pause <= nanoseconds(0)) {
    throw_wrong("first_pause",
                absl::StrFormat("must be positive, it is %d ns", policy.first_pause.count()));
  }
  if (policy.longest_pause < policy.first_pause) {
    throw_wrong("longest_pause", "must not be shorter than first_pause");
  }
  // Also what is no number.
  if (!(policy.multiplier >= 1)) {
    throw_wrong("multiplier", absl::StrFormat("must be at least 1, it is %g", policy.multiplier));
  }
  return policy;
}

bool RetryRules::may_repeat(const Failure& failure) const {
  if (attempts_ >= policy_.max_attempts || !may_pass(failure.code)) return false;
  if (failure.is_lost && policy_.retry_at == RetryAt::kSameWorker) return false;
  switch (safety_) {
    case Safety::kRunsOnce:
      return failure.execution == Execution::kDidNotRun;
    case Safety::kIdempotent:
      return true;
    case Safety::kStartsOnce:
      return failure.execution == Execution::kDidNotRun && !failure.is_lost &&
             failure.answered == Answered::kByNobody;
  }
  return false;
}

RetryRules::Decision RetryRules::on_failure(const Failure& failure, TimePoint now, double chance) {
  Decision decision;
  if (!may_repeat(failure) || now >= deadline_) return decision;
  const double longest = static_cast<double>(policy_.longest_pause.count());
  const double pause = std::min(static_cast<double>(policy_.first_pause.count()) *
                                    std::pow(policy_.multiplier, attempts_ - 1),
                                longest);
  ++attempts_;
  if (failure.is_lost) {
    decision.kind = Decision::Kind::kRepeatAtNext;
    return decision;
  }
  const auto cut = nanoseconds(static_cast<nanoseconds::rep>(pause * (1 - chance / 2)));
  // The failure says more than that the time is over.
  if (cut >= deadline_ - now) return decision;
  decision.kind = Decision::Kind::kRepeat;
  decision.when = now + cut;
  return decision;
}

}  // namespace sinew::internal
