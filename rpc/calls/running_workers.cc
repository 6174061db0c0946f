#include "sinew/rpc/calls/running_workers.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

// Never destroyed: threads look at it until the process is gone.
struct WorkersOfProcess {
  static WorkersOfProcess& get() {
    static auto& registry = *new WorkersOfProcess();
    return registry;
  }

  // A forked child may find the mutex held permanently.
  const ProcessBound process;
  Mutex mutex;
  std::vector<std::weak_ptr<WorkerServices>> workers ABSL_GUARDED_BY(mutex);
};

}  // namespace

void note_worker(std::weak_ptr<WorkerServices> services) {
  WorkersOfProcess& registry = WorkersOfProcess::get();
  MutexLock lock(registry.mutex);
  auto& workers = registry.workers;
  workers.erase(std::remove_if(workers.begin(), workers.end(),
                               [](const auto& worker) { return worker.expired(); }),
                workers.end());
  workers.push_back(std::move(services));
}

std::vector<Worker> running_workers() {
  WorkersOfProcess& registry = WorkersOfProcess::get();
  if (registry.process.is_orphan()) return {};
  // The last handle of one may go here: not under the lock.
  std::vector<std::shared_ptr<WorkerServices>> alive;
  {
    MutexLock lock(registry.mutex);
    for (const std::weak_ptr<WorkerServices>& weak : registry.workers) {
      if (auto services = weak.lock()) alive.push_back(std::move(services));
    }
  }
  std::vector<Worker> workers;
  for (const auto& services : alive) {
    Worker worker = services->handle();
    if (worker.is_running()) workers.push_back(std::move(worker));
  }
  return workers;
}

}  // namespace sinew::internal
