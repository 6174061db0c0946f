#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "sinew/rpc/base/host_limits.h"
#include "sinew/rpc/worker_options.h"

namespace sinew::internal {

/// Threads that a worker starts with, and one each that it and gRPC are soon to need.
std::size_t threads_at_start(const WorkerOptions& options);

/// How many threads run handlers at once: WorkerOptions::num_threads, or one for each core that the
/// limits leave, at least 4; fewer where the process may start few threads.
std::size_t handler_threads(const WorkerOptions& options, const HostLimits& limits);

/// With how many threads one handler should compute where LibTorch would take `computing`: no more
/// than cores, and all handlers together half of the threads that the process may start.
int computing_threads(const WorkerOptions& options, const HostLimits& limits, int computing);

/// Has LibTorch compute with so many threads, if it would take one for each CPU; leaves it alone if
/// a number was chosen (OMP_NUM_THREADS, at::set_num_threads). OpenMP ends the process when it
/// cannot start a thread. Returns a sentence for the log if something has changed, or "".
std::string limit_computing_threads(const WorkerOptions& options, const HostLimits& limits);

/// Bytes that one peer may have waiting here: WorkerOptions::receive_window_bytes, or a quarter of
/// the memory that control groups leave.
std::uint64_t receive_window(const WorkerOptions& options, const HostLimits& limits);

/// A sentence for the log where that is less than was asked for; "" otherwise.
std::string smaller_window(const WorkerOptions& options, const HostLimits& limits);

}  // namespace sinew::internal
