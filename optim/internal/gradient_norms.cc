#include "sinew/optim/internal/gradient_norms.h"

#include <algorithm>
#include <cmath>

#include "ATen/Functions.h"
#include "absl/container/flat_hash_set.h"
#include "sinew/autograd/context.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/call.h"
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

std::vector<at::Tensor> values_of(const std::vector<RRef<at::Tensor>>& parameters) {
  std::vector<at::Tensor> values;
  for (const RRef<at::Tensor>& parameter : parameters) values.push_back(parameter.local_value());
  return values;
}

std::optional<std::uint64_t> first_repeated(const std::vector<at::Tensor>& tensors) {
  absl::flat_hash_set<const c10::TensorImpl*> seen;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!seen.insert(tensors[i].unsafeGetTensorImpl()).second) return i;
  }
  return std::nullopt;
}

}  // namespace

PowerSum gradient_power_sum(const autograd::ContextId& context,
                            const std::vector<RRef<at::Tensor>>& parameters, double norm_type) {
  const Worker worker = current_worker();
  PowerSum part;
  if (!is_here(worker, context, CallContext::current().caller().incarnation)) return part;
  const std::vector<at::Tensor> leaves = values_of(parameters);
  part.twice = first_repeated(leaves);
  part.modules = reducers_of(worker, context, leaves);
  double& sum = part.value;
  for (const at::Tensor& leaf : leaves) {
    at::Tensor gradient = autograd::gradient_of(worker, context, leaf);
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
  return part;
}

void scale_gradients_of(const autograd::ContextId& context,
                        const std::vector<RRef<at::Tensor>>& parameters, double factor,
                        std::uint64_t operation) {
  const Worker worker = current_worker();
  if (!is_here(worker, context, CallContext::current().caller().incarnation)) return;
  scale_gradients(worker, context, values_of(parameters), factor,
                  {operation, CallContext::current().caller()});
}

Unscaled unscale_gradients(const Worker& worker, const autograd::ContextId& context,
                           const std::vector<at::Tensor>& parameters, double factor,
                           const ScaleRequest& request) {
  Unscaled unscaled;
  if (!is_here(worker, context, request.by.incarnation)) return unscaled;
  scale_gradients(worker, context, parameters, factor, request);
  unscaled.modules = reducers_of(worker, context, parameters);
  for (const at::Tensor& parameter : parameters) {
    at::Tensor gradient = autograd::gradient_of(worker, context, parameter);
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) gradient = gradient.coalesce().values();
    // After it was scaled: what is then too large, or was infinite before, would do harm.
    if (!at::isfinite(gradient).all().item<bool>()) ++unscaled.nonfinite;
  }
  return unscaled;
}

std::vector<double> largest_of_ranks(const autograd::ContextId& context,
                                     const std::vector<std::uint64_t>& modules,
                                     std::int32_t subject, const std::vector<double>& own) {
  return largest_of_processes(current_worker(), context, modules,
                              static_cast<LeafReducer::Subject>(subject), own);
}

std::vector<double> agree(const autograd::ContextId& context, const std::vector<ModulesAt>& places,
                          LeafReducer::Subject subject, std::vector<double> own,
                          const CallOptions& options) {
  for (const auto& [owner, modules] : places) {
    if (modules.empty()) continue;
    own = owner.with(options).call<&largest_of_ranks>(context, modules,
                                                      static_cast<std::int32_t>(subject), own);
  }
  return own;
}

}  // namespace sinew::internal
