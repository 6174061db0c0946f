#pragma once

#include <cstdint>

#include "c10/core/Device.h"
#include "sinew/groups/process_group.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace sinew::internal {

/// See c10d_group_of().
c10::intrusive_ptr<c10d::ProcessGroup> make_c10d_adapter(const ProcessGroup& group,
                                                         c10::DeviceType device,
                                                         std::int64_t module);

}  // namespace sinew::internal
