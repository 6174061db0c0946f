#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/membership/member_codec.h"

namespace sinew::internal {

/// What a gather does when one of its members is lost.
enum class LossMode {
  /// Everyone gets an error that names it, unless it had come before: a gather to which all have
  /// come is complete, whoever leaves or is lost then.
  kFail,
  /// It goes on without the lost member, the leader included; its value is then the empty string.
  kTolerate,
};

/// Barriers and all-gathers among named workers, this one included. All of them must make the same
/// calls on a set of names in the same order; calls on different sets do not meet, and several may
/// be under way at once, from any threads. The n-th call on a set here meets the n-th call there:
/// in kFail mode counted anew when a member is replaced by a new incarnation, in kTolerate mode
/// from the start of each worker.
///
/// Nobody ever gets a part of the values, and whoever gets a result gets the same one.
///
/// Thread-safe. The directory and the scheduler must outlive the executor's shutdown.
class Gather {
 public:
  virtual ~Gather() = default;

  /// The values of all, in the order of the sorted names. Order and repetition in `names` mean
  /// nothing. kFail: who they are is settled when this returns. kInvalidArgument: no names, or
  /// without this worker; kNotFound: a name is no member, nor was lately (kFail mode);
  /// kUnavailable: a member was lost or has left before it came, by name; kDeadlineExceeded: names
  /// those that had not come, and the seconds (at the leader and at those whom its answer reaches;
  /// otherwise names the leader).
  virtual Future<std::vector<std::string>> all_gather_async(const std::vector<std::string>& names,
                                                            std::string value,
                                                            std::chrono::nanoseconds timeout,
                                                            LossMode mode) = 0;
  /// An all-gather of nothing.
  Future<void> barrier_async(const std::vector<std::string>& names,
                             std::chrono::nanoseconds timeout, LossMode mode = LossMode::kFail) {
    return all_gather_async(names, {}, timeout, mode).then([](const std::vector<std::string>&) {});
  }

  /// Ends all gathers in which this worker takes part, with that. Done when they have ended.
  virtual Future<void> end(const absl::Status& reason) = 0;
  /// That incarnation is lost, or has left the job, and its link has ended. Of several reports the
  /// first counts.
  virtual void on_worker_lost(const WorkerInfo& worker, Departure how) = 0;
  /// The same while its link may be up: before the directory does without it.
  virtual void on_worker_gone(const WorkerInfo& worker, Departure how) = 0;
};

}  // namespace sinew::internal
