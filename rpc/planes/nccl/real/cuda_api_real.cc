#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/planes/nccl/nccl_api.h"

namespace sinew::internal {
namespace {

absl::Status to_status(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  // Takes it back, so that LibTorch does not report it as an error of its own next call.
  (void)cudaGetLastError();
  return absl::UnavailableError(absl::StrCat(call, ": ", cudaGetErrorString(error)));
}

// Makes a device the current one of the thread for a scope.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    status_ = to_status(cudaGetDevice(&before_), "cudaGetDevice");
    if (status_.ok() && before_ != device) {
      status_ = to_status(cudaSetDevice(device), "cudaSetDevice");
      changed_ = status_.ok();
    }
  }
  ~OnDevice() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  absl::Status status_;
};

class RealCuda final : public DeviceApi {
 public:
  int device_count() const override {
    int count = 0;
    return to_status(cudaGetDeviceCount(&count), "cudaGetDeviceCount").ok() ? count : 0;
  }

  absl::Status bind_thread(int device) override {
    return to_status(cudaSetDevice(device), "cudaSetDevice");
  }

  absl::StatusOr<Stream> create_stream(int device) override {
    const OnDevice scope(device);
    if (!scope.status().ok()) return scope.status();
    cudaStream_t stream = nullptr;
    absl::Status status = to_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                    "cudaStreamCreateWithFlags");
    if (!status.ok()) return status;
    return Stream{stream};
  }

  void destroy_stream(int device, Stream stream) override {
    const OnDevice scope(device);
    (void)to_status(cudaStreamDestroy(static_cast<cudaStream_t>(stream)), "cudaStreamDestroy");
  }

  absl::StatusOr<Event> create_event(int device) override {
    const OnDevice scope(device);
    if (!scope.status().ok()) return scope.status();
    cudaEvent_t event = nullptr;
    absl::Status status = to_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                    "cudaEventCreateWithFlags");
    if (!status.ok()) return status;
    return Event{event};
  }

  void destroy_event(Event event) override {
    (void)to_status(cudaEventDestroy(static_cast<cudaEvent_t>(event)), "cudaEventDestroy");
  }

  // A null stream is the default one of the current device, hence the scopes.
  absl::Status record(Event event, int device, Stream stream) override {
    const OnDevice scope(device);
    if (!scope.status().ok()) return scope.status();
    return to_status(
        cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)),
        "cudaEventRecord");
  }

  absl::Status wait(Stream stream, int device, Event event) override {
    const OnDevice scope(device);
    if (!scope.status().ok()) return scope.status();
    return to_status(
        cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0),
        "cudaStreamWaitEvent");
  }

  absl::StatusOr<bool> is_done(Event event) override {
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
