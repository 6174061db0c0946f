#pragma once

#include <chrono>

#include "absl/status/statusor.h"
#include "sinew/rpc/membership/rendezvous.h"
#include "sinew/rpc/worker_options.h"

namespace sinew::internal {

/// WorkerOptions::max_poll, but at most SINEW_MAX_POLL_US microseconds, where the environment sets
/// that for all workers of the process. kInvalidArgument names the variable.
absl::StatusOr<std::chrono::nanoseconds> max_poll_of(
    const WorkerOptions& options, const EnvironmentReader& environment = process_environment());

}  // namespace sinew::internal
