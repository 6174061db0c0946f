#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "sinew/rpc/base/threads/poll_policy.h"

namespace sinew::internal::sim {

/// A host, and what runs there.
struct HostWorld {
  std::string name;
  /// Microseconds, as all times here: what it takes to wake a thread.
  int wake_up = 30;
  int cores = 2;
  /// The part of the time for which each core is away for other guests.
  double stolen = 0;
  /// Each computes for `think`, calls its server, and waits; the server computes for `service`.
  int callers = 1;
  /// Callers share one server with one thread; or each has its own.
  bool shared_server = true;
  int think = 0;
  int service = 5;
  /// Every so many calls the caller thinks for so long; 0: never.
  int pause_each = 0;
  int pause = 0;
  /// Threads that compute all the time.
  int busy = 0;
};

/// What the threads have done in the simulated time.
struct HostWork {
  std::int64_t calls = 0;
  std::int64_t computed = 0;
  /// By callers, and by servers.
  std::int64_t polled = 0;
  std::int64_t polled_for_others = 0;
};

/// Runs the world for so long. `fixed`: waits poll for up to so long each; otherwise PollPolicy
/// says. Threads run as Linux has them run: a woken one takes the place of one that has had more
/// time, others take turns of 3 ms, who yields goes behind all others.
HostWork run_host(const HostWorld& world, int duration, std::optional<int> fixed);

}  // namespace sinew::internal::sim
