#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// What the job's own protocols (membership, gathers, shutdown) need of the world: the time,
/// timers, and a place to run. What it is made of must outlive it. Thread-safe.
class Scheduler {
 public:
  using TimePoint = Clock::TimePoint;
  using TimerId = Timers::TimerId;

  Scheduler(Executor& executor, Timers& timers, Clock& clock)
      : runner_(executor.runner()), executor_(&executor), timers_(timers), clock_(clock) {}
  /// Without an executor: the continuations of futures run inline. For tests that step by hand.
  Scheduler(std::shared_ptr<TaskRunner> runner, Timers& timers, Clock& clock)
      : runner_(std::move(runner)), timers_(timers), clock_(clock) {}

  TimePoint now() const { return clock_.now(); }
  /// `task` runs on a timer thread: it must be short.
  TimerId run_at(TimePoint when, Task task) { return timers_.run_at(when, std::move(task)); }
  bool cancel(TimerId id) { return timers_.cancel(id); }
  const std::shared_ptr<TaskRunner>& runner() const { return runner_; }
  /// For making promises; may be null.
  Executor* executor() const { return executor_; }

 private:
  const std::shared_ptr<TaskRunner> runner_;
  Executor* const executor_ = nullptr;
  Timers& timers_;
  Clock& clock_;
};

/// `start` plus `timeout`, or TimePoint::max() instead of an overflow.
inline Clock::TimePoint deadline_after(Clock::TimePoint start, std::chrono::nanoseconds timeout) {
  if (timeout >= Clock::TimePoint::max() - start) return Clock::TimePoint::max();
  return start + timeout;
}

}  // namespace sinew::internal
