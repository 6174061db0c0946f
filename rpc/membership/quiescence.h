#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::internal {

/// One worker's calls at one moment; both numbers must be of the same moment.
struct CallCounts {
  /// Calls that were sent and whose continuations have not run yet, and calls that are being
  /// served. A call that follows from another one must be counted before the other one stops to be.
  std::uint64_t active = 0;
  /// Calls that were ever sent or served. Only grows.
  std::uint64_t started = 0;
};

/// Done when no call is under way anywhere among `names`, this worker included, and none can follow
/// from another; new calls that come from outside (a user thread, a client that is no worker) are
/// not foreseen. All of `names` must make the call. Lost workers drop out. `counts` is called once
/// a round, on an executor thread; `scheduler` must live until the future is done. `gather`: the
/// values of `names`, sorted; empty ones of those who are lost.
///
/// Rounds of all-gathers. A worker counts in a round after all have counted in the round before. So
/// when two rounds in a row see no active call and the same totals, there was a moment between them
/// at which nothing was active anywhere, and nothing had begun since.
///
/// kDeadlineExceeded after `timeout` names the workers that had active calls in the last round, or
/// those that did not take part.
using GatherRound = std::function<Future<std::vector<std::string>>(
    const std::vector<std::string>& names, std::string value, std::chrono::nanoseconds timeout)>;
Future<void> wait_for_quiescence_async(GatherRound gather, std::vector<std::string> names,
                                       std::function<CallCounts()> counts,
                                       std::chrono::nanoseconds timeout, Scheduler& scheduler);

}  // namespace sinew::internal
