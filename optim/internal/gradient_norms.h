#pragma once

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/autograd/context.h"
#include "sinew/rpc/method.h"
#include "sinew/rref/rref.h"

// What clip_grad_norm_() and GradScaler ask of the owners of parameters.
namespace sinew::internal {

/// A part of the p-norm of gradients: the sum of the p-th powers, or the largest absolute value for
/// infinity. Those without a gradient count for nothing.
double gradient_power_sum(const autograd::ContextId& context,
                          const std::vector<RRef<at::Tensor>>& parameters, double norm_type);
/// Multiplies gradients, once for each number of an operation.
void scale_gradients_of(const autograd::ContextId& context,
                        const std::vector<RRef<at::Tensor>>& parameters, double factor,
                        std::uint64_t operation);

/// What GradScaler asks: see LocalOptimizer::unscale().
std::uint64_t unscale_gradients(const Worker& worker, const autograd::ContextId& context,
                                const std::vector<at::Tensor>& parameters, double factor,
                                const ScaleRequest& request);

}  // namespace sinew::internal

SINEW_METHOD_AS("sinew.optim.gradient_power_sum", &sinew::internal::gradient_power_sum);
SINEW_METHOD_AS("sinew.optim.scale_gradients", &sinew::internal::scale_gradients_of);
