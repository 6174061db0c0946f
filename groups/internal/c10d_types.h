#pragma once

#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/version.h"
#if TORCH_VERSION_MAJOR >= 2
#include "torch/csrc/distributed/c10d/Backend.hpp"
#endif

namespace sinew::internal {

/// What LibTorch's backends (Gloo, NCCL) are: before 2.0 process groups of their own.
#if TORCH_VERSION_MAJOR >= 2
using C10dBackend = c10d::Backend;
#else
using C10dBackend = c10d::ProcessGroup;
#endif

}  // namespace sinew::internal
