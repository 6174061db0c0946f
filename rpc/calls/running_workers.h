#pragma once

#include <memory>
#include <vector>

#include "sinew/rpc/worker.h"

namespace sinew::internal {

class WorkerServices;

/// Notes a worker that is about to join. It is forgotten when it is gone. Thread-safe.
void note_worker(std::weak_ptr<WorkerServices> services);

/// The workers of this process that run, in the order in which they started: not those that were
/// shut down or evicted. None in a forked child. Thread-safe.
std::vector<Worker> running_workers();

}  // namespace sinew::internal
