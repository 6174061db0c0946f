#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// When something ends that begins now; far away for timeouts that would overflow.
inline Clock::TimePoint deadline_after(std::chrono::nanoseconds timeout) {
  const std::chrono::nanoseconds longest = std::chrono::hours(24 * 365);
  return Clock::system().now() + std::min(timeout, longest);
}

/// What is left until then, rounded up, 0 if it has passed.
inline std::uint64_t milliseconds_until(Clock::TimePoint deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::system().now());
  return static_cast<std::uint64_t>(std::max<std::int64_t>(left.count(), 0));
}

}  // namespace sinew::internal
