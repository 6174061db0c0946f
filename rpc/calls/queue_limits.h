#pragma once

#include <algorithm>
#include <chrono>

#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// When something is to be done about a call that waits for a thread of its callee.
struct QueueLimits {
  /// What a caller is told before it gives up: a quarter of a second, a sixteenth of a shorter
  /// time.
  static constexpr std::chrono::milliseconds kLongestGrace{250};
  static constexpr int kShareOfGrace = 16;
  /// A call that waits for so long is worth a line in the log, and again after a pause.
  static constexpr std::chrono::seconds kLongWait{3};
  static constexpr std::chrono::seconds kPause{10};

  /// From here on a call that has not begun is refused: the answer is there before its caller's
  /// time is over, on all but the slowest networks.
  static Clock::TimePoint refused_at(Clock::TimePoint arrived, Clock::TimePoint deadline) {
    if (deadline == Clock::TimePoint::max()) return deadline;
    return deadline - std::clamp<std::chrono::nanoseconds>((deadline - arrived) / kShareOfGrace,
                                                           std::chrono::nanoseconds(0),
                                                           kLongestGrace);
  }

  /// When to look at the call next.
  static Clock::TimePoint look_at(Clock::TimePoint arrived, Clock::TimePoint deadline,
                                  Clock::TimePoint now) {
    const Clock::TimePoint told_at = arrived + kLongWait;
    return std::min(refused_at(arrived, deadline), now < told_at ? told_at : now + kPause);
  }
};

}  // namespace sinew::internal
