#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"

namespace sinew::internal {

// Of strided tensors, on one device. What LibTorch says of views that are not dense is "too hard":
// this says it, by their sizes and strides, whatever the number of elements. Tensors whose strides
// are so odd that it would take long count as ones that share memory.

/// Whether two elements of the tensor have memory in common.
bool overlaps_itself(const at::Tensor& tensor);
/// Whether an element of one has memory in common with an element of the other.
bool share_memory(const at::Tensor& a, const at::Tensor& b);
/// The first two that share memory, the smaller number first.
std::optional<std::pair<std::size_t, std::size_t>> first_that_share(
    const std::vector<at::Tensor>& tensors);

}  // namespace sinew::internal
