#include "sinew/optim/internal/gradient_norms.h"

#include <algorithm>
#include <cmath>

#include "ATen/Functions.h"
#include "sinew/autograd/context.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/call_context.h"

namespace sinew::internal {
namespace {

/// Throws kNotFound for a context that is known to have ended.
bool is_here(const Worker& worker, const autograd::ContextId& context, Incarnation caller) {
  try {
    autograd::gradient_of(worker, context, at::Tensor());
    return true;
  } catch (const RpcError& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    if (has_ended(worker, context, caller)) throw;
    return false;
  }
}

}  // namespace

double gradient_power_sum(const autograd::ContextId& context,
                          const std::vector<RRef<at::Tensor>>& parameters, double norm_type) {
  const Worker worker = current_worker();
  if (!is_here(worker, context, CallContext::current().caller().incarnation)) return 0;
  double sum = 0;
  for (const RRef<at::Tensor>& parameter : parameters) {
    at::Tensor gradient = autograd::gradient_of(worker, context, parameter.local_value());
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) gradient = gradient.coalesce().values();
    if (gradient.numel() == 0) continue;
    const double norm = at::linalg_vector_norm(gradient, norm_type).item<double>();
    if (std::isinf(norm_type)) {
      // Also what is no number must show.
      sum = std::isnan(norm) ? norm : std::max(sum, norm);
    } else {
      sum += std::pow(norm, norm_type);
    }
  }
  return sum;
}

void scale_gradients_of(const autograd::ContextId& context,
                        const std::vector<RRef<at::Tensor>>& parameters, double factor,
                        std::uint64_t operation) {
  const Worker worker = current_worker();
  if (!is_here(worker, context, CallContext::current().caller().incarnation)) return;
  std::vector<at::Tensor> leaves;
  for (const RRef<at::Tensor>& parameter : parameters) leaves.push_back(parameter.local_value());
  scale_gradients(worker, context, leaves, factor, {operation, CallContext::current().caller()});
}

std::uint64_t unscale_gradients(const Worker& worker, const autograd::ContextId& context,
                                const std::vector<at::Tensor>& parameters, double factor,
                                const ScaleRequest& request) {
  if (!is_here(worker, context, request.by.incarnation)) return 0;
  scale_gradients(worker, context, parameters, factor, request);
  std::uint64_t count = 0;
  for (const at::Tensor& parameter : parameters) {
    at::Tensor gradient = autograd::gradient_of(worker, context, parameter);
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) gradient = gradient.coalesce().values();
    // After it was scaled: what is then too large, or was infinite before, would do harm.
    if (!at::isfinite(gradient).all().item<bool>()) ++count;
  }
  return count;
}

}  // namespace sinew::internal
