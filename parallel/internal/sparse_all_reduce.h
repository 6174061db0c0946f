#pragma once

#include "ATen/core/Tensor.h"
#include "sinew/groups/process_group.h"

namespace sinew::parallel::internal {

/// The sum of sparse (COO) tensors of the same sizes of all ranks, coalesced. Ranks exchange their
/// elements, of which they may have different numbers. Blocks, so that all ranks do their next
/// operations in the same order; throws RpcError.
at::Tensor sparse_all_reduce(const ProcessGroup& group, const at::Tensor& sparse);

/// A gradient of an embedding's weight of which no row was used: rows are sparse, columns dense.
at::Tensor empty_sparse_gradient(const at::Tensor& weight);

}  // namespace sinew::parallel::internal
