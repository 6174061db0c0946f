#pragma once

#include <cstddef>

#include "sinew/parallel/comm_hook.h"

namespace sinew::parallel {

/// What a backward pass may do with parameters of a data-parallel module that require a gradient.
enum class UnusedParameters {
  /// Each gets one in every pass, on every rank; otherwise backward() throws on all ranks, and
  /// names them.
  kForbidden,
  /// Some may get none. What got none on any rank, also since the pass before under no_sync(),
  /// keeps the gradient that it has; otherwise ranks that did not use it count as zeros. Costs a
  /// look at the graph in each forward().
  kFound,
};

/// What happens to buffers (running statistics, mostly) before a forward().
enum class BufferSync {
  /// Those of rank 0 are copied to all ranks.
  kBroadcast,
  /// Each rank keeps its own.
  kKept,
};

/// Where `.grad` of the parameters lives.
enum class GradientMemory {
  kOwn,
  /// In the buckets, which saves a copy, and as much memory as all gradients take. Gradients must
  /// not be detached in place then: use Module::zero_grad(), or leave it to
  /// DistributedDataParallel::zero_grad(), which works with each LibTorch.
  kBucketViews,
};

/// Who calls forward() with gradients enabled.
enum class Callers {
  /// The thread that made the DistributedDataParallel, within the call that it served then, if any.
  /// Another one is an error of forward(): threads that take turns, as with a mutex, may take other
  /// turns on other ranks, and gradients would be means of different batches.
  kMaker,
  /// Any, one after the other. The program must give them the same order on all ranks: e.g. one
  /// leader calls handlers of all ranks, and waits for them before it calls again. This is not
  /// checked.
  kInOneOrder,
};

/// How a DistributedDataParallel reduces gradients. The same on all ranks, but for `gradients` and
/// `callers`; what a hook does is not compared.
struct DdpOptions {
  /// Gradients are reduced in buckets of about this size. Positive.
  std::size_t bucket_bytes = std::size_t{25} << 20;
  /// The bucket that is complete first is smaller, so that communication starts early. Positive.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  UnusedParameters unused_parameters = UnusedParameters::kForbidden;
  BufferSync buffers = BufferSync::kBroadcast;
  GradientMemory gradients = GradientMemory::kOwn;
  Callers callers = Callers::kMaker;
  /// Null: the mean of all ranks.
  CommHook comm_hook;
};

}  // namespace sinew::parallel
