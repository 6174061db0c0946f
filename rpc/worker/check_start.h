#pragma once

#include <chrono>

#include "sinew/rpc/worker_options.h"

namespace sinew::internal {

/// Throws RpcError: kInvalidArgument with the name of an option that is out of range,
/// kResourceExhausted when the process gets too few threads or files for a worker,
/// kFailedPrecondition in a child of a process with workers.
void check_start(const WorkerOptions& options);

/// Throws RpcError kInvalidArgument that names the option unless the value is positive.
void check_positive(std::chrono::nanoseconds value, const char* option);

}  // namespace sinew::internal
