#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "c10/core/Stream.h"

namespace sinew::internal {

/// What Sinew needs of a kind of device: its memory, its streams, and copies between it and the
/// host that wait for nothing but events. LibTorch does the rest. Thread-safe.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  virtual c10::DeviceType type() const = 0;
  /// Devices have the indexes below it.
  virtual int device_count() const = 0;

  /// Whether this process has used the device: the first use of one may take long, and memory.
  virtual bool is_in_use(c10::Device device) const = 0;
  /// The stream on which this thread's work for the device goes.
  virtual c10::Stream current_stream(c10::Device device) const = 0;
  /// The library's own handle of a stream: cudaStream_t for CUDA.
  virtual void* handle(c10::Stream stream) const = 0;

  /// Whether work that is queued on `stream` goes into a graph instead of being done: a wait for it
  /// would never end.
  virtual bool is_capturing(c10::Stream stream) const = 0;

  /// Copies the elements of `dense`, which has no gaps, to the host, in the order of its memory:
  /// after what is on `stream` by now. Returns when they are there; other work is not waited for.
  virtual at::Tensor to_host(const at::Tensor& dense, c10::Stream stream) = 0;
  /// Host memory from which to_device() is fastest: a tensor of so many bytes.
  virtual at::Tensor allocate_host(std::size_t size_bytes) = 0;
  /// The other way round; `host` is from allocate_host() and stays unchanged. The copy is after
  /// what is on `stream` by now and before what follows there; this does not wait for it.
  virtual void to_device(const at::Tensor& host, const at::Tensor& dense, c10::Stream stream) = 0;
};

/// The bytes of `dense`, which has no gaps, as a tensor of at::kByte that shares its memory.
at::Tensor bytes_of(const at::Tensor& dense);

/// The runtime of a kind of device; null when there is none. That for CUDA is there when Sinew was
/// built with it and the process has a CUDA device. Thread-safe.
std::shared_ptr<DeviceRuntime> find_device_runtime(c10::DeviceType type);
std::vector<std::shared_ptr<DeviceRuntime>> device_runtimes();
/// Replaces one of the same type. Workers that run already do not see it.
void register_device_runtime(std::shared_ptr<DeviceRuntime> runtime);

}  // namespace sinew::internal
