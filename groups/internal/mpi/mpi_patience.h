#pragma once

#include <algorithm>
#include <chrono>

namespace sinew::internal {

/// How long to wait until one asks MPI again whether an operation is done. MPI moves bytes while it
/// is asked, so that naps cost time: there are none during the first ten milliseconds, and later
/// they are a small part of the time that has passed. A thread that waits long, e.g. for a rank
/// that computes, leaves the core to others.
class MpiPatience {
 public:
  using Clock = std::chrono::steady_clock;

  /// Something has moved, or is new.
  void reset() { begun_ = Clock::now(); }

  /// Zero: ask again after a sched_yield().
  Clock::duration nap(Clock::time_point now) const {
    const Clock::duration passed = now - begun_;
    if (passed < kImpatient) return Clock::duration::zero();
    return std::min<Clock::duration>(passed / 32, kLongestNap);
  }

 private:
  static constexpr auto kImpatient = std::chrono::milliseconds(10);
  static constexpr auto kLongestNap = std::chrono::milliseconds(1);

  Clock::time_point begun_ = Clock::now();
};

}  // namespace sinew::internal
