#include "sinew/rpc/device/device_runtime.h"

#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/internal/queued_work.h"
#include "sinew/rpc/device/stream_work.h"
#ifdef SINEW_WITH_CUDA
#include "sinew/rpc/device/cuda/cuda_runtime.h"
#endif

namespace sinew::internal {
namespace {

class Registry {
 public:
  static Registry& of_process() {
    // Never destroyed: workers may outlive main().
    static Registry* const registry = new Registry();
    return *registry;
  }

  Registry() {
#ifdef SINEW_WITH_CUDA
    if (auto cuda = make_cuda_runtime()) add(std::move(cuda));
#endif
  }

  void add(std::shared_ptr<DeviceRuntime> runtime) {
    set_find_queued_work(&StreamWork::of_this_thread);
    MutexLock lock(mutex_);
    for (auto& each : runtimes_) {
      if (each->type() != runtime->type()) continue;
      each = std::move(runtime);
      return;
    }
    runtimes_.push_back(std::move(runtime));
  }

  std::vector<std::shared_ptr<DeviceRuntime>> all() const {
    MutexLock lock(mutex_);
    return runtimes_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<DeviceRuntime>> runtimes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

at::Tensor bytes_of(const at::Tensor& dense) {
  const at::NoGradGuard no_grad;
  const auto size = static_cast<std::int64_t>(dense.nbytes());
  const auto offset = dense.storage_offset() * static_cast<std::int64_t>(dense.itemsize());
  return at::empty({0}, dense.options().dtype(at::kByte).requires_grad(false))
      .set_(dense.storage(), offset, {size}, {1});
}

std::shared_ptr<DeviceRuntime> find_device_runtime(c10::DeviceType type) {
  for (auto& runtime : Registry::of_process().all()) {
    if (runtime->type() == type) return runtime;
  }
  return nullptr;
}

std::vector<std::shared_ptr<DeviceRuntime>> device_runtimes() {
  return Registry::of_process().all();
}

void register_device_runtime(std::shared_ptr<DeviceRuntime> runtime) {
  Registry::of_process().add(std::move(runtime));
}

}  // namespace sinew::internal
