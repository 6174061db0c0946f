#pragma once

#include <chrono>

namespace sinew::internal {

/// One stop of a job may reach a process several times at once: a service manager signals all of
/// its processes, and their launcher passes on what it got itself.
inline constexpr std::chrono::seconds kOneStop{2};

/// Whether a request to stop that comes now is the first one once more.
constexpr bool is_same_stop(std::chrono::steady_clock::time_point first,
                            std::chrono::steady_clock::time_point now) {
  return now - first < kOneStop;
}

}  // namespace sinew::internal
