#include "sinew/rpc/device/cuda/cuda_runtime.h"

#include "ATen/core/grad_mode.h"
#include "ATen/cuda/CUDAContext.h"
#include "ATen/cuda/CUDAEvent.h"
#include "ATen/detail/CUDAHooksInterface.h"
#include "ATen/ops/empty.h"
#include "c10/core/StreamGuard.h"
#include "c10/cuda/CUDAException.h"
#include "c10/cuda/CUDAFunctions.h"
#include "c10/cuda/CUDAStream.h"

namespace sinew::internal {
namespace {

class CudaRuntime final : public DeviceRuntime {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  int device_count() const override { return c10::cuda::device_count(); }

  bool is_in_use(c10::Device device) const override {
    return at::detail::getCUDAHooks().hasPrimaryContext(device.index());
  }
  c10::Stream current_stream(c10::Device device) const override {
    return c10::cuda::getCurrentCUDAStream(device.index()).unwrap();
  }
  void* handle(c10::Stream stream) const override { return c10::cuda::CUDAStream(stream).stream(); }

  bool is_capturing(c10::Stream stream) const override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const c10::StreamGuard on_stream(stream);
    C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::CUDAStream(stream), &status));
    return status != cudaStreamCaptureStatusNone;
  }

  at::Tensor to_host(const at::Tensor& dense, c10::Stream stream) override {
    const at::NoGradGuard no_grad;
    at::Tensor host = allocate_host(dense.nbytes());
    // Sets the device too.
    const c10::StreamGuard on_stream(stream);
    host.copy_(bytes_of(dense), /*non_blocking=*/true);
    at::cuda::CUDAEvent copied;
    copied.record(c10::cuda::CUDAStream(stream));
    copied.synchronize();
    return host;
  }

  at::Tensor allocate_host(std::size_t size_bytes) override {
    // LibTorch keeps pinned blocks for the next time, and knows until when a copy reads one.
    return at::empty({static_cast<std::int64_t>(size_bytes)},
                     at::TensorOptions().dtype(at::kByte).device(at::kCPU).pinned_memory(true));
  }

  void to_device(const at::Tensor& host, const at::Tensor& dense, c10::Stream stream) override {
    const at::NoGradGuard no_grad;
    const c10::StreamGuard on_stream(stream);
    bytes_of(dense).copy_(host, /*non_blocking=*/true);
  }
};

}  // namespace

std::shared_ptr<DeviceRuntime> make_cuda_runtime() {
  // 0 also when there is no driver.
  if (c10::cuda::device_count() == 0) return nullptr;
  // Linkers that leave out what no symbol is needed of would leave out all of LibTorch's operators
  // for CUDA, which register themselves.
  [[maybe_unused]] volatile const auto operators = &at::cuda::getCurrentDeviceProperties;
  return std::make_shared<CudaRuntime>();
}

}  // namespace sinew::internal
