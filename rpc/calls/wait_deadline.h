#pragma once

#include <chrono>
#include <optional>

#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {

/// When a wait of the calling thread ends: after `timeout` (unset: the worker's default), and no
/// later than the call that the thread serves; Clock::TimePoint::max() for kNoTimeout. Throws
/// kInvalidArgument for a timeout that is not positive, kFailedPrecondition for a worker that was
/// shut down, kAborted for one that is evicted.
Clock::TimePoint wait_deadline(const WorkerServices& services,
                               std::optional<std::chrono::nanoseconds> timeout);

}  // namespace sinew::internal
