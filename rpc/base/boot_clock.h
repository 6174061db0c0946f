#pragma once

#include <chrono>

namespace sinew::internal {

/// The time that leases are counted in. It goes on while the machine is suspended, in which Clock
/// stands still: a worker that wakes up after its lease must find that its lease has ended, as its
/// peers have found. Calls' deadlines and timers keep to Clock, so the two have time points of
/// different types. A timer for a time of this clock is set by what is left until then, and is late
/// by what the machine sleeps meanwhile: check the time at each use too. Thread-safe.
class BootClock {
 public:
  /// Nanoseconds since a start that is the same for all processes of the machine.
  using TimePoint = std::chrono::time_point<BootClock, std::chrono::nanoseconds>;
  virtual ~BootClock() = default;
  /// Never goes backwards. Costs what the steady clock does: no system call.
  virtual TimePoint now() const = 0;
  /// CLOCK_BOOTTIME.
  static const BootClock& system();
};

}  // namespace sinew::internal
