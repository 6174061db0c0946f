#pragma once

#include "ATen/core/Tensor.h"
#include "sinew/groups/process_group.h"

namespace sinew::parallel::internal {

/// A tensor of the host, where the group can take it: a copy on a GPU when it has no backend for
/// the CPU. For what ranks tell each other.
at::Tensor group_tensor(const ProcessGroup& group, const at::Tensor& tensor);

}  // namespace sinew::parallel::internal
