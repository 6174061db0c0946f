#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <ostream>
#include <utility>

#include "sinew/groups/process_group.h"

namespace sinew::parallel {

/// Batch normalisation over the batches of all ranks of a group, as if they were one: forward,
/// running statistics and gradients are those of one process with the whole batch. Takes the place
/// of torch::nn::BatchNorm1d, 2d and 3d: input [N, C] or [N, C, ...], of which ranks may have
/// different N, also 0; same C. Half precision is computed with in float, as BatchNorm does.
///
/// In training forward() gathers the statistics of all ranks, and backward() sums two vectors of
/// size C, so all ranks do both, in the same order. The gradients of weight and bias are this
/// rank's part, for a DistributedDataParallel to reduce. In evaluation, or with a group of one, it
/// is a BatchNorm. Gradients of gradients are not computed.
///
/// forward() throws RpcError: kInvalidArgument for an input of other sizes, or when all ranks
/// together have one value per channel, and what the group's operations throw.
class SyncBatchNormImpl
    : public torch::nn::NormImplBase<1, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& norm_options, ProcessGroup group);

  at::Tensor forward(const at::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const at::Tensor& input) override;

 private:
  at::Tensor forward_over_group(const at::Tensor& input);
  /// How much a batch changes the running statistics; counts the batch.
  double count_batch();

  ProcessGroup group_;
};
TORCH_MODULE(SyncBatchNorm);

namespace internal {

struct BatchNormTensors {
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
  at::Tensor num_batches_tracked;
};
void copy_batch_norm(const BatchNormTensors& from, const SyncBatchNormImpl& to);

}  // namespace internal

/// A SyncBatchNorm with the options of one of LibTorch's BatchNorm holders, and copies of its
/// parameters and buffers. It cannot replace that within a module that was made before: in LibTorch
/// the members of a module, not its list of children, are what its forward() uses. So a model takes
/// the one or the other where it is made:
///
///     bn1 = register_module(
///         "bn1", sinew::parallel::sync_batch_norm(torch::nn::BatchNorm2d(64), group));
template <class Holder>
SyncBatchNorm sync_batch_norm(const Holder& plain, ProcessGroup group) {
  SyncBatchNorm made(plain->options, std::move(group));
  internal::copy_batch_norm({plain->weight, plain->bias, plain->running_mean, plain->running_var,
                             plain->num_batches_tracked},
                            *made);
  return made;
}

}  // namespace sinew::parallel
