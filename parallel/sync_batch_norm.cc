#include "sinew/parallel/sync_batch_norm.h"

#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "ATen/Functions.h"
#include "ATen/core/grad_mode.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/parallel/internal/sync_batch_norm_function.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel {
namespace {

std::optional<double> momentum_of(const torch::nn::BatchNormOptions& options) {
  if (!options.momentum().has_value()) return std::nullopt;
  return *options.momentum();
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& norm_options,
                                     ProcessGroup group)
    : NormImplBase(norm_options), group_(std::move(group)) {
  if (group_.valid()) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 "SyncBatchNorm: the process group is empty: this process is not among its ranks");
}

void SyncBatchNormImpl::_check_input_dim(const at::Tensor& input) {
  if (input.dim() >= 2 && input.size(1) == options.num_features()) return;
  throw RpcError(
      ErrorCode::kInvalidArgument,
      absl::StrFormat("SyncBatchNorm has got an input of sizes [%s], but it takes [N, %d] "
                      "or [N, %d, ...]",
                      absl::StrJoin(input.sizes(), ", "), options.num_features(),
                      options.num_features()));
}

double SyncBatchNormImpl::count_batch() {
  if (!is_training() || !num_batches_tracked.defined()) return options.momentum().value_or(0);
  num_batches_tracked += 1;
  return options.momentum().value_or(1.0 / num_batches_tracked.item<double>());
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  _check_input_dim(input);
  if (is_training() && group_.size() > 1) return forward_over_group(input);
  const double momentum = count_batch();
  const bool by_batch = is_training() || !options.track_running_stats();
  return at::batch_norm(input, weight, bias, running_mean, running_var, by_batch, momentum,
                        options.eps(), /*cudnn_enabled=*/true);
}

at::Tensor SyncBatchNormImpl::forward_over_group(const at::Tensor& input) {
  const internal::Normalised normalised =
      internal::sync_batch_norm(group_, input, weight, bias, {options.eps(), momentum_of(options)});
  const double momentum = count_batch();
  if (options.track_running_stats() && normalised.mean.numel() > 0) {
    const at::AutoGradMode no_grad(false);
    // In double, whatever these are kept in.
    running_mean.copy_(running_mean.to(at::kDouble).lerp_(normalised.mean, momentum));
    running_var.copy_(running_var.to(at::kDouble).lerp_(normalised.unbiased_variance, momentum));
  }
  return normalised.output;
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "sinew::parallel::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", momentum="
         << (options.momentum().has_value() ? std::to_string(*options.momentum()) : "none")
         << ", affine=" << (options.affine() ? "true" : "false")
         << ", track_running_stats=" << (options.track_running_stats() ? "true" : "false")
         << ", ranks=" << group_.size() << ")";
}

void internal::copy_batch_norm(const BatchNormTensors& from, const SyncBatchNormImpl& to) {
  const auto copy = [](const at::Tensor& source, const at::Tensor& target) {
    // With its type and device.
    if (source.defined()) target.set_data(source.detach().clone());
  };
  copy(from.weight, to.weight);
  copy(from.bias, to.bias);
  copy(from.running_mean, to.running_mean);
  copy(from.running_var, to.running_var);
  copy(from.num_batches_tracked, to.num_batches_tracked);
}

}  // namespace sinew::parallel
