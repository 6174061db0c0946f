#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "absl/functional/any_invocable.h"

namespace sinew::internal {

/// Runs what a faulty transport delays.
class FaultTimer {
 public:
  virtual ~FaultTimer() = default;
  virtual void run_after(std::chrono::nanoseconds delay, absl::AnyInvocable<void() &&> task) = 0;
};

/// Time that passes when the test says so. Thread-safe; tasks run on the thread that advances.
class ManualFaultTimer final : public FaultTimer {
 public:
  ManualFaultTimer();
  ~ManualFaultTimer() override;
  void run_after(std::chrono::nanoseconds delay, absl::AnyInvocable<void() &&> task) override;
  /// Runs what is due within `time`, in the order of due times, also what that sets in turn.
  void advance(std::chrono::nanoseconds time);
  std::size_t pending() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

/// Real time: one thread.
std::shared_ptr<FaultTimer> make_threaded_fault_timer();

}  // namespace sinew::internal
