#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/groups/process_group.h"
#include "sinew/rpc/base/future.h"

namespace sinew::parallel {

/// Gradients of one process that are reduced together.
struct GradientBucket {
  /// From 0, in the order in which all processes reduce them.
  std::size_t index = 0;
  /// Whether it is the last one of the pass.
  bool is_last = false;
  /// The gradients, one after the other: one dimension. May be changed in place.
  at::Tensor gradients;
  /// Whose they are, in this order.
  std::vector<at::Tensor> parameters;
};

/// Replaces the mean over all ranks of a group. It starts what is to be done with a bucket and
/// returns a future of the result: a tensor of the type and size of bucket.gradients, which may be
/// that tensor itself, and the same on all ranks.
///
/// Runs inside of the backward pass: it does not block, and starts its operations on the group in
/// the same order on all ranks. What it throws, or the future has, makes the pass fail. A pass that
/// fails on one rank calls it there for the buckets that are left, with zeros, on the thread that
/// finds that out.
using CommHook =
    std::function<Future<at::Tensor>(const ProcessGroup& group, const GradientBucket& bucket)>;

/// The mean, by one all_reduce of the whole bucket: what is done without a hook.
CommHook all_reduce_hook();
/// The mean of gradients that were rounded to half precision: half the bytes for float. Each is
/// divided by the group's size before it is summed, so that sums do not overflow.
CommHook fp16_compress_hook();
/// The same with bfloat16, which keeps float's range and three significant digits.
CommHook bf16_compress_hook();

}  // namespace sinew::parallel
