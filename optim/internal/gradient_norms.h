#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/autograd/context.h"
#include "sinew/autograd/internal/leaf_reducer.h"
#include "sinew/rpc/call_options.h"
#include "sinew/rpc/method.h"
#include "sinew/rref/rref.h"

// What clip_grad_norm_() and GradScaler ask of the owners of parameters.
namespace sinew::internal {

/// A part of the p-norm of gradients.
struct PowerSum {
  /// The sum of the p-th powers, or the largest absolute value for infinity. Those without a
  /// gradient count for nothing.
  double value = 0;
  /// The number of a parameter that is there twice.
  std::optional<std::uint64_t> twice = {};
  /// The data-parallel modules that have reduced some of them: see largest_of_ranks().
  std::vector<std::uint64_t> modules;
};
PowerSum gradient_power_sum(const autograd::ContextId& context,
                            const std::vector<RRef<at::Tensor>>& parameters, double norm_type);
/// Multiplies gradients, once for each number of an operation.
void scale_gradients_of(const autograd::ContextId& context,
                        const std::vector<RRef<at::Tensor>>& parameters, double factor,
                        std::uint64_t operation);

struct Unscaled {
  /// How many gradients are infinite or NaN.
  std::uint64_t nonfinite = 0;
  /// As PowerSum's.
  std::vector<std::uint64_t> modules;
};
/// What GradScaler asks: see LocalOptimizer::unscale().
Unscaled unscale_gradients(const Worker& worker, const autograd::ContextId& context,
                           const std::vector<at::Tensor>& parameters, double factor,
                           const ScaleRequest& request);

/// Has the ranks of data-parallel modules that have reduced gradients in a context at this worker
/// agree: see LeafReducer::largest(). Blocks until all ranks have called it.
std::vector<double> largest_of_ranks(const autograd::ContextId& context,
                                     const std::vector<std::uint64_t>& modules,
                                     std::int32_t subject, const std::vector<double>& own);

struct ModulesAt {
  Peer owner;
  std::vector<std::uint64_t> modules;
};
/// The same of the modules at several owners: what all of their ranks agree on, `own` where there
/// are none.
std::vector<double> agree(const autograd::ContextId& context, const std::vector<ModulesAt>& places,
                          LeafReducer::Subject subject, std::vector<double> own,
                          const CallOptions& options);

}  // namespace sinew::internal

SINEW_STRUCT(sinew::internal::PowerSum, value, twice, modules);
SINEW_STRUCT(sinew::internal::Unscaled, nonfinite, modules);
SINEW_METHOD_AS("sinew.optim.gradient_power_sum", &sinew::internal::gradient_power_sum);
SINEW_METHOD_AS("sinew.optim.scale_gradients", &sinew::internal::scale_gradients_of);
SINEW_METHOD_AS("sinew.optim.largest_of_ranks", &sinew::internal::largest_of_ranks);
