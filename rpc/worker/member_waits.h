#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/member_event.h"
#include "sinew/rpc/worker/member_presence.h"

namespace sinew::internal {

/// Those who wait for a member of some name. Thread-safe; nothing here blocks or runs user code.
class MemberWaits : public std::enable_shared_from_this<MemberWaits> {
 public:
  /// `is_lost`: whether a member is lost, or has left, by now: it may be before that is an event.
  /// Called with a lock held.
  MemberWaits(Timers& timers, Clock& clock, std::function<bool(const WorkerInfo&)> is_lost)
      : timers_(timers), clock_(clock), is_lost_(std::move(is_lost)) {}

  /// In their order.
  void on_event(const MemberEvent& event);
  /// See WorkerServices::wait_for_member(). Callbacks of the future run on `executor`.
  Future<WorkerInfo> wait_async(std::string name, Incarnation other_than, Clock::TimePoint deadline,
                                Executor* executor);
  /// What became of the last worker of that name, as a text.
  std::string absence(const std::string& name);
  /// The worker is out of the job, or ends: all waits fail with `reason`, also later ones. Of
  /// several reasons the first counts.
  void end(const absl::Status& reason);

 private:
  struct Wait {
    std::string name;
    Incarnation other_than;
    Clock::TimePoint begun;
    Promise<WorkerInfo> promise;
    // 0: it has no limit.
    Timers::TimerId timer = 0;
  };
  void on_deadline(std::uint64_t number);

  Timers& timers_;
  Clock& clock_;
  const std::function<bool(const WorkerInfo&)> is_lost_;

  Mutex mutex_;
  MemberPresence presence_ ABSL_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Wait> waits_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
