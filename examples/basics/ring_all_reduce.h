#pragma once

#include "ATen/core/Tensor.h"
#include "sinew/groups/process_group.h"

/// Sums of all ranks' tensors, with nothing but sends and receives between neighbours of a ring.
namespace basics {

/// Passes whole tensors around, as PyTorch's tutorial does: each rank sends and receives `send`
/// once for each other rank. `receive` is filled with the sum. Both have the same sizes and type on
/// all ranks. Errors are those of ProcessGroup::isend and irecv.
void ring_all_reduce_whole(const at::Tensor& send, const at::Tensor& receive,
                           const sinew::ProcessGroup& group);

/// The same in place, and with one chunk of the tensor for each rank: the chunks are summed on
/// their way around the ring (reduce-scatter), and the sums go around once more (all-gather). So a
/// rank sends less than two tensors, however many ranks there are: the algorithm of Patarasuk and
/// Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009). Where types
/// round, the sum may differ from all_reduce's in its last digits, but not between ranks.
void ring_all_reduce(const at::Tensor& tensor, const sinew::ProcessGroup& group);

}  // namespace basics
