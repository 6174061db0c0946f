#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "sinew/rpc/base/credit.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/link/dial_order.h"

namespace sinew::internal {

/// A worker's DialOrder with its timer and its lock. Thread-safe. Held by shared_ptr.
class DialTurns : public std::enable_shared_from_this<DialTurns> {
 public:
  /// All are used until close().
  DialTurns(Incarnation self, Executor& executor, Timers& timers, const Clock& clock)
      : executor_(executor), timers_(timers), clock_(clock), order_(self) {}

  /// Runs on the executor, with the turn, which ends when that goes, or after
  /// DialOrder::kLongestTurn: the attempt itself goes on. Who needs no turn any more, since the
  /// peer has dialled or entered once more, runs with none.
  using Begin = absl::AnyInvocable<void(Credit turn) &&>;
  void enter(Incarnation peer, Begin begin);
  /// The peer has dialled here, with success.
  void on_accepted(Incarnation peer);
  /// No turn begins any more.
  void close();

 private:
  struct Ready {
    /// 0: it has none.
    DialOrder::Turn turn;
    Begin begin;
  };
  void step_locked(std::vector<Ready>& ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void post(std::vector<Ready> ready);
  void leave(DialOrder::Turn turn);
  void on_timer();

  Executor& executor_;
  Timers& timers_;
  const Clock& clock_;
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  DialOrder order_ ABSL_GUARDED_BY(mutex_);
  // Of those that wait.
  absl::flat_hash_map<Incarnation, Begin> begins_ ABSL_GUARDED_BY(mutex_);
  Clock::TimePoint armed_for_ ABSL_GUARDED_BY(mutex_) = Clock::TimePoint::max();
  Timers::TimerId timer_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sinew::internal
