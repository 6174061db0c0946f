#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/optim/internal/standby_messages.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/worker.h"
#include "sinew/rref/rref.h"

namespace sinew::internal {

/// What an owner has of its standby: sends it all changes, and knows which of them are there.
/// Those of one owner are sent one at a time. A standby that fails, or is lost, is none any more,
/// and the owner goes on without. Thread-safe.
class Mirror : public std::enable_shared_from_this<Mirror> {
 public:
  /// `worker` is the owner's, and `stream` what the standby's stand_by() has returned.
  Mirror(Worker worker, RRef<LocalOptimizer> standby, std::uint64_t stream);

  const RRef<LocalOptimizer>& standby() const { return standby_; }
  /// The first change. The future fails when the standby does not fit, does not answer in time, or
  /// misses a change meanwhile (kAborted); from when it is done on, acknowledged() waits for all.
  /// `options` are those of the groups.
  Future<void> begin(OwnerSnapshot snapshot, const std::vector<optim::Options>& options,
                     std::chrono::nanoseconds timeout);
  void send(OwnerSnapshot snapshot, const std::vector<optim::Options>& options);
  void send(const MirroredStep& step);
  void send(std::size_t group, const optim::Options& options);

  /// Done when the standby has all that was sent so far, or is none any more; fails with kAborted
  /// when it has taken over. While it is catching up, done already unless it is far behind.
  Future<void> acknowledged();
  /// Whether the standby has taken over.
  bool is_superseded() const;
  /// Whether the standby gets what changes.
  bool is_followed() const;
  /// Ends it. Done when the standby knows that it must not take over, or is lost; fails with
  /// kAborted when it has taken over, and when it could not be told. Then it may be called again.
  Future<void> dismiss();

 private:
  enum class Phase { kCatchingUp, kInSync, kLeaving, kGone, kSuperseded };

  /// `call(options, id)` makes the call.
  template <class Call>
  void send_change(const Call& call);
  template <class Call>
  Future<FollowOutcome> start(const CallOptions& options, const Call& call) const;
  std::vector<RRef<optim::Options>> copies(const std::vector<optim::Options>& options) const;
  Future<void> settle(const Future<FollowOutcome>& done);
  Future<void> give_up(const std::exception_ptr& why);
  void end(FollowOutcome outcome);
  Future<void> acknowledged_locked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const Worker worker_;
  const RRef<LocalOptimizer> standby_;
  const std::uint64_t stream_;
  mutable Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kCatchingUp;
  std::uint64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t answered_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of the last change.
  Future<void> last_ ABSL_GUARDED_BY(mutex_);
  Future<void> left_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
