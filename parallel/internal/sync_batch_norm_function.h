#pragma once

#include <optional>

#include "ATen/core/Tensor.h"
#include "sinew/groups/process_group.h"

namespace sinew::parallel::internal {

/// An input that was normalised over all ranks, and what it was normalised with, per channel.
struct Normalised {
  at::Tensor output;
  at::Tensor mean;
  /// Of all values of the channel on all ranks, divided by one less than their number.
  at::Tensor unbiased_variance;
};

/// What must be the same on all ranks.
struct NormSettings {
  double eps = 0;
  std::optional<double> momentum;
};

/// `input` is [N, C, ...]; `weight` and `bias`, of size C, may be undefined. The output has a
/// graph, the others have none. Blocks, as its backward does. Throws RpcError kInvalidArgument on
/// all ranks when their settings differ.
///
/// The statistics are combined as in Chan, Golub and LeVeque, "Updating Formulae and a Pairwise
/// Algorithm for Computing Sample Variances" (1979).
Normalised sync_batch_norm(const ProcessGroup& group, const at::Tensor& input,
                           const at::Tensor& weight, const at::Tensor& bias,
                           const NormSettings& settings);

}  // namespace sinew::parallel::internal
