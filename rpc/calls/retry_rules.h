#pragma once

#include <chrono>

#include "absl/status/status.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/retry_policy.h"

namespace sinew::internal {

/// When one call is repeated: after which errors, and when. Without calls, a clock or chance.
class RetryRules {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// What a call can bear.
  enum class Safety {
    /// To run once at most.
    kRunsOnce,
    /// To run several times: SINEW_IDEMPOTENT.
    kIdempotent,
    /// To be started once at most, wherever that ends: its reference has one id.
    kStartsOnce,
  };
  /// Whose error it is.
  enum class Answered { kByCallee, kByNobody };
  /// How an attempt failed.
  struct Failure {
    ErrorCode code = ErrorCode::kUnknown;
    Execution execution = Execution::kMayHaveRun;
    Answered answered = Answered::kByCallee;
    /// The callee is lost, or has left.
    bool is_lost = false;
  };
  struct Decision {
    enum class Kind {
      /// The failure is the call's.
      kGiveUp,
      /// Repeat it at `when`.
      kRepeat,
      /// Repeat it once another worker of that name is there.
      kRepeatAtNext,
    };
    Kind kind = Kind::kGiveUp;
    TimePoint when;
  };

  RetryRules(const RetryPolicy& policy, Safety safety, TimePoint deadline)
      : policy_(policy), safety_(safety), deadline_(deadline) {}

  /// `chance` is drawn from [0, 1).
  Decision on_failure(const Failure& failure, TimePoint now, double chance);
  int attempts() const { return attempts_; }

 private:
  bool may_repeat(const Failure& failure) const;

  const RetryPolicy policy_;
  const Safety safety_;
  const TimePoint deadline_;
  int attempts_ = 1;
};

}  // namespace sinew::internal
