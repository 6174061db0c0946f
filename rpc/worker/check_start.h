#pragma once

#include <chrono>

#include "sinew/rpc/worker_options.h"

namespace sinew::internal {

/// The options, with what the environment says where they say nothing. Throws RpcError:
/// kInvalidArgument with the name of an option that is out of range, kPermissionDenied for one that
/// sends in the clear where nothing may, kResourceExhausted when the process gets too few threads
/// or files for a worker, kFailedPrecondition in a child of a process with workers.
WorkerOptions check_start(WorkerOptions options);

/// Throws RpcError kInvalidArgument that names the option unless the value is positive.
void check_positive(std::chrono::nanoseconds value, const char* option);

}  // namespace sinew::internal
