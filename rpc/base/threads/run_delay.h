#pragma once

#include <chrono>
#include <optional>

namespace sinew::internal {

/// What a thread has lost to others that use its core.
struct RunDelay {
  /// For how long it could have run, and waited for a core.
  std::chrono::nanoseconds delay{0};
  /// In how long a time.
  std::chrono::nanoseconds time{0};
};

/// Of the calling thread since it asked last. Nothing when it has never asked or did so less than
/// 10 ms ago, so that it costs next to nothing however often it asks; nor where the kernel does not
/// say (Linux does in /proc/thread-self/schedstat: Documentation/scheduler/sched-stats).
std::optional<RunDelay> new_run_delay(std::chrono::steady_clock::time_point now);

}  // namespace sinew::internal
