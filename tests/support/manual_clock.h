#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/boot_clock.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_heap.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::testing {

/// A clock that stands still until advance() is called, with timers that run inside that call, each
/// at its own time, in the caller's thread. Thread-safe, but for two concurrent advance() calls.
class ManualClock final : public internal::Clock, public internal::Timers {
 public:
  explicit ManualClock(TimePoint start = TimePoint(std::chrono::hours(1)))
      : now_(std::chrono::nanoseconds(start.time_since_epoch()).count()) {}

  TimePoint now() const override { return TimePoint(std::chrono::nanoseconds(now_.load())); }

  TimerId run_at(TimePoint when, internal::Task task) override {
    internal::MutexLock lock(mutex_);
    return heap_.add(when, std::move(task));
  }
  bool cancel(TimerId id) override {
    internal::Task removed;
    internal::MutexLock lock(mutex_);
    removed = heap_.remove(id);
    return removed != nullptr;
  }
  std::size_t num_timers() const {
    internal::MutexLock lock(mutex_);
    return heap_.size();
  }

  /// Moves the time on by `step` (zero: runs what is due now), stopping at each timer on the way;
  /// also at those that the callbacks set.
  void advance(std::chrono::nanoseconds step) {
    const TimePoint end = now() + step;
    while (internal::Task task = next_task(end)) std::move(task)();
    now_ = end.time_since_epoch().count();
  }

 private:
  internal::Task next_task(TimePoint end) {
    internal::MutexLock lock(mutex_);
    const TimePoint due = heap_.next_due();
    if (due <= end && due > now()) now_ = due.time_since_epoch().count();
    return heap_.pop_due(end);
  }

  // Starts well after the epoch, so that a test can also name times in the past.
  std::atomic<std::int64_t> now_;
  mutable internal::Mutex mutex_;
  internal::TimerHeap heap_ ABSL_GUARDED_BY(mutex_);
};

/// Goes with a ManualClock, but for suspensions, in which that one stands still. Thread-safe.
class ManualBootClock final : public internal::BootClock {
 public:
  /// `clock` must outlive this.
  explicit ManualBootClock(const ManualClock& clock) : clock_(clock) {}
  TimePoint now() const override {
    return TimePoint(clock_.now().time_since_epoch() + std::chrono::nanoseconds(suspended_.load()));
  }
  /// The machine sleeps for so long: no timer runs.
  void suspend(std::chrono::nanoseconds time) { suspended_ += time.count(); }

 private:
  const ManualClock& clock_;
  std::atomic<std::int64_t> suspended_{0};
};

}  // namespace sinew::testing
