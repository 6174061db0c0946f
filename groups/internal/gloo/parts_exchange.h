#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "gloo/context.h"
#include "sinew/groups/reduce_op.h"
#include "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"

namespace sinew::internal {

// What Gloo has for one buffer only, whose parts it counts with 31 bits: exchanges of a list of
// tensors, one for each rank, straight out of and into their memory and of any size.

/// The operation `tag`, over the connections of `context`.
struct GlooPlace {
  std::shared_ptr<gloo::Context> context;
  std::uint32_t tag = 0;
};
using GlooWork = c10::intrusive_ptr<c10d::ProcessGroupGloo::AsyncWork>;

/// `inputs[r]` goes to rank r and comes into `outputs[this rank]` there. All are contiguous bytes;
/// the two of a pair of ranks have equal sizes.
GlooWork make_parts_exchange(GlooPlace place, std::vector<at::Tensor> outputs,
                             std::vector<at::Tensor> inputs);

/// `output` becomes the reduction of the `inputs[this rank]` of all ranks, as reduce_here() makes
/// it. All are contiguous, of one dimension, and of any type that it takes; `inputs` have the same
/// sizes at all ranks. It takes `piece_bytes` of memory in addition: so much is received at a time.
GlooWork make_parts_reduction(GlooPlace place, const at::Tensor& output,
                              std::vector<at::Tensor> inputs, ReduceOp op, std::size_t piece_bytes);

}  // namespace sinew::internal
