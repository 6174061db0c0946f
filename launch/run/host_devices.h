#pragma once

#include <optional>
#include <string>

namespace sinew::internal {

/// The GPUs of this host that CUDA would show to this process, without asking CUDA.
int usable_gpus();

/// Of so many GPUs, those that are left by a value of CUDA_VISIBLE_DEVICES (none: all): a list of
/// numbers and names (GPU-..., MIG-...), which ends before the first that is no such device.
int visible_gpus(int gpus, const std::optional<std::string>& visible_devices);

}  // namespace sinew::internal
