#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "c10/core/DeviceGuard.h"
#include "c10/util/Exception.h"
#include "sinew/rpc/planes/nccl/nccl_api.h"

namespace sinew::internal {
namespace {

absl::Status to_status(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  // Takes it back, so that LibTorch does not report it as an error of its own next call.
  (void)cudaGetLastError();
  return absl::UnavailableError(absl::StrCat(call, ": ", cudaGetErrorString(error)));
}

// Event queries, which the strictest captures of other threads forbid, are allowed to this one: it
// captures nothing.
absl::Status relax_captures() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  return to_status(cudaThreadExchangeStreamCaptureMode(&mode),
                   "cudaThreadExchangeStreamCaptureMode");
}

// The same for a scope, on threads of others.
class RelaxedCaptures {
 public:
  RelaxedCaptures() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCaptures() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCaptures(const RelaxedCaptures&) = delete;
  RelaxedCaptures& operator=(const RelaxedCaptures&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Runs `call` with `device` as the thread's current one. LibTorch restores the one before, without
// making a context on a device that has none, and reads it as LibTorch does.
template <class Call>
absl::Status on_device(int device, Call call) {
  try {
    const c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
    return call();
  } catch (const c10::Error& error) {
    return absl::UnavailableError(error.what_without_backtrace());
  }
}

class RealCuda final : public DeviceApi {
 public:
  int device_count() const override {
    int count = 0;
    return to_status(cudaGetDeviceCount(&count), "cudaGetDeviceCount").ok() ? count : 0;
  }

  absl::Status bind_thread(int device) override {
    absl::Status status = to_status(cudaSetDevice(device), "cudaSetDevice");
    return status.ok() ? relax_captures() : status;
  }

  absl::Status leave_captures_alone() override { return relax_captures(); }

  absl::StatusOr<Stream> create_stream(int device) override {
    cudaStream_t stream = nullptr;
    absl::Status status = on_device(device, [&] {
      return to_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                       "cudaStreamCreateWithFlags");
    });
    if (!status.ok()) return status;
    return Stream{stream};
  }

  void destroy_stream(int device, Stream stream) override {
    (void)on_device(device, [&] {
      return to_status(cudaStreamDestroy(static_cast<cudaStream_t>(stream)), "cudaStreamDestroy");
    });
  }

  absl::StatusOr<Event> create_event(int device) override {
    cudaEvent_t event = nullptr;
    absl::Status status = on_device(device, [&] {
      return to_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                       "cudaEventCreateWithFlags");
    });
    if (!status.ok()) return status;
    return Event{event};
  }

  void destroy_event(Event event) override {
    const RelaxedCaptures scope;
    (void)to_status(cudaEventDestroy(static_cast<cudaEvent_t>(event)), "cudaEventDestroy");
  }

  // A null stream is the default one of the current device.
  absl::Status record(Event event, int device, Stream stream) override {
    return on_device(device, [&] {
      cudaStreamCaptureStatus captures = cudaStreamCaptureStatusNone;
      absl::Status status =
          to_status(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &captures),
                    "cudaStreamIsCapturing");
      if (!status.ok()) return status;
      if (captures != cudaStreamCaptureStatusNone) {
        return absl::FailedPreconditionError("the stream of the tensors captures a CUDA graph");
      }
      return to_status(
          cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)),
          "cudaEventRecord");
    });
  }

  absl::StatusOr<bool> is_done(Event event) override {
    const RelaxedCaptures scope;
    const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (error == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    absl::Status status = to_status(error, "cudaEventQuery");
    if (!status.ok()) return status;
    return true;
  }
};

}  // namespace

std::shared_ptr<DeviceApi> make_cuda_api() { return std::make_shared<RealCuda>(); }

}  // namespace sinew::internal
