#pragma once

#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/groups/process_group.h"

namespace sinew::parallel {

/// Sums tensors over the ranks of a group and multiplies each by `scale` (unset: one over the size
/// of the group, which makes means), in place: losses, accuracies, counts. One all_reduce for all
/// tensors of one type on one device, whatever their number. They are of floating point. All ranks
/// pass as many, of the same sizes. Blocks. Throws RpcError kInvalidArgument that names the tensor,
/// and what the group's all_reduce throws.
void scaled_all_reduce(const ProcessGroup& group, const std::vector<at::Tensor>& tensors,
                       std::optional<double> scale = std::nullopt);

/// The same of numbers, with double precision; returns the results.
std::vector<double> scaled_all_reduce(const ProcessGroup& group, const std::vector<double>& values,
                                      std::optional<double> scale = std::nullopt);

}  // namespace sinew::parallel
