#pragma once

#include <cstdint>

#include "c10/core/Device.h"
#include "sinew/groups/process_group.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace sinew::internal {

/// The group as LibTorch's own code (its Reducer) takes it, for tensors of that kind of device. Its
/// operations are the group's own: they are checked, count among those that are under way, have the
/// group's time limit and fail with it. It keeps the group. Throws RpcError kUnimplemented when the
/// group has no backend for the device, kFailedPrecondition for an invalid handle. `module`: see
/// CallSignature.
c10::intrusive_ptr<c10d::ProcessGroup> c10d_group_of(const ProcessGroup& group,
                                                     c10::DeviceType device,
                                                     std::int64_t module = 0);

/// A kind of device that the group has a backend for: the CPU if it can be.
c10::DeviceType any_device_of(const ProcessGroup& group);

/// A group of the same ranks, with the same time limit and checks. All of them call it. Blocks;
/// throws what new_group() throws.
ProcessGroup another_group(const ProcessGroup& group);

}  // namespace sinew::internal
