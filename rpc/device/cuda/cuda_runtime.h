#pragma once

#include <memory>

#include "sinew/rpc/device/device_runtime.h"

namespace sinew::internal {

/// CUDA through LibTorch: its streams, its caching allocators, pinned host memory. Null when the
/// process has no CUDA device that works.
std::shared_ptr<DeviceRuntime> make_cuda_runtime();

}  // namespace sinew::internal
