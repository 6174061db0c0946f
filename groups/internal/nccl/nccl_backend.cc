#include <utility>

#include "c10/cuda/CUDAGuard.h"
#include "c10/cuda/CUDAStream.h"
#include "sinew/groups/internal/backend.h"
#include "sinew/groups/internal/nccl_rules.h"
#include "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"

namespace sinew::internal {
namespace {

using c10d::ProcessGroupNCCL;

class NcclBackend final : public Backend {
 public:
  explicit NcclBackend(const BackendRequest& request) {
    auto options = ProcessGroupNCCL::Options::create();
    // The group keeps time limits; LibTorch's own watchdog would end the process.
    options->timeout = std::chrono::hours(24 * 365);
    nccl_ = c10::make_intrusive<ProcessGroupNCCL>(request.store, request.rank, request.size,
                                                  std::move(options));
  }

  std::string_view name() const override { return "nccl"; }
  C10dBackend& c10d() override { return *nccl_; }

  bool can(Function function) const override { return nccl_can(function, TORCH_VERSION_MAJOR); }
  bool reduces(at::ScalarType type, ReduceOp op) const override { return nccl_reduces(type, op); }

  // LibTorch's futures are complete when the work is queued; a thread waits for the device.
  bool has_future(Function function) const override {
    (void)function;
    return false;
  }

  RunOn here(c10::Device device) override {
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device.index());
    return [stream](const std::function<void()>& f) {
      const c10::cuda::CUDAStreamGuard guard(stream);
      f();
    };
  }

  void finish(c10d::Work& work, c10::Device device, const std::function<void()>& finish) override {
    // Another stream than the user's, which may go on with other things.
    const c10::cuda::CUDAStream stream =
        c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index());
    const c10::cuda::CUDAStreamGuard guard(stream);
    work.wait();
    if (finish) finish();
    stream.synchronize();
  }

  void abort(const absl::Status& reason) override {
    (void)reason;
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
    nccl_->abort();
#endif
    // Before that, communicators are aborted when the backend goes.
  }

 private:
  c10::intrusive_ptr<ProcessGroupNCCL> nccl_;
};

}  // namespace

std::unique_ptr<Backend> make_nccl_backend(const BackendRequest& request) {
  return std::make_unique<NcclBackend>(request);
}

}  // namespace sinew::internal
