#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "sinew/rpc/base/threads/executor.h"

namespace sinew::internal {

/// The time source of everything above base/. Tests drive a ManualClock (tests/support).
class Clock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  /// The steady clock of the system.
  static Clock& system();
};

/// Runs callbacks at set times. Callbacks are short, never block and must not throw: they post real
/// work to an executor. Thread-safe.
class Timers {
 public:
  using TimerId = std::uint64_t;  // never 0
  virtual ~Timers() = default;

  /// Callbacks that are set for the same time run in the order in which they were set. One whose
  /// time has passed runs soon, but not inside this call.
  virtual TimerId run_at(Clock::TimePoint when, Task task) = 0;
  /// Returns true if the callback was removed before it began; false if it ran, runs or never
  /// existed. Does not wait for a running callback.
  virtual bool cancel(TimerId id) = 0;
};

/// Timers on one thread of their own. Setting and cancelling cost well under a microsecond, since
/// every call sets one and almost always cancels it.
class TimerQueue final : public Timers {
 public:
  /// Throws RpcError kResourceExhausted when the thread cannot be started.
  TimerQueue();
  /// As stop().
  ~TimerQueue() override;
  /// Joins the thread, so it must not be called in a callback. From then on none runs; those that
  /// are set are destroyed with the queue. Idempotent, but not from two threads at once.
  void stop();
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;

  TimerId run_at(Clock::TimePoint when, Task task) override;
  bool cancel(TimerId id) override;
  /// Whether the calling thread is that of a queue: it must not stop one.
  static bool is_timer_thread();
  /// How many callbacks are set and have not begun.
  std::size_t size() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sinew::internal
