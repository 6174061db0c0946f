#include "sinew/optim/grad_scaler.h"

#include <algorithm>
#include <cmath>

#include "ATen/core/Tensor.h"
#include "absl/strings/str_format.h"
#include "sinew/optim/internal/distributed_optimizer_impl.h"
#include "sinew/optim/internal/gradient_norms.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/optim/internal/optimizer_parts.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::optim {
namespace {

void check(bool right, const char* field, double value, const char* want) {
  if (right) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrFormat("GradScaler: %s is %g, but it must be %s", field, value, want));
}

void check_scale(const char* field, double scale) {
  check(scale > 0 && std::isfinite(scale), field, scale, "more than 0 and finite");
}

[[noreturn]] void refuse(const char* text) { throw RpcError(ErrorCode::kFailedPrecondition, text); }

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  check_scale("init_scale", options.init_scale);
  check(options.growth_factor > 1 && std::isfinite(options.growth_factor), "growth_factor",
        options.growth_factor, "more than 1 and finite");
  check(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor",
        options.backoff_factor, "between 0 and 1");
  check(options.growth_interval > 0, "growth_interval",
        static_cast<double>(options.growth_interval), "at least 1");
  state_.scale = options.enabled ? options.init_scale : 1;
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  return options_.enabled ? loss.mul(state_.scale) : loss;
}

GradScaler::Iteration& GradScaler::iteration_of(const DistributedOptimizer& optimizer,
                                                const autograd::Context& context) {
  Iteration& iteration = iterations_[optimizer.impl()];
  if (iteration.is_stepped) {
    refuse("GradScaler: there was a step of this optimizer since the last update(): call that");
  }
  const bool is_other = iteration.operation != 0 && iteration.context != context.id();
  if (is_other && iteration.is_unscaled) {
    refuse(
        "GradScaler: the gradients of this optimizer were unscaled in another context: go on "
        "with that, or call update()");
  }
  // One that was given up when it could not be unscaled.
  if (iteration.operation == 0 || is_other) {
    iteration.context = context.id();
    iteration.operation = random_secret();
  }
  return iteration;
}

void GradScaler::unscale(const DistributedOptimizer& optimizer, Iteration& iteration,
                         const CallOptions& options) const {
  const DistributedOptimizer::Impl& impl = optimizer.checked();
  const std::vector<internal::Unscaled> parts =
      internal::call_parts<&internal::LocalOptimizer::unscale>(
          impl.parts, options, iteration.context, 1 / state_.scale, iteration.operation);
  iteration.agreed = state_;
  bool found = false;
  std::vector<internal::ModulesAt> own;
  // Modules of this trainer that have nothing to do with the optimizer, but with the scale.
  std::vector<std::uint64_t> others = internal::reducers_in(impl.worker, iteration.context);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    found = found || parts[i].nonfinite > 0;
    own.push_back({impl.parts[i].optimizer.peer(), parts[i].modules});
    if (impl.parts[i].owner.incarnation != impl.worker.info().incarnation) continue;
    for (const std::uint64_t module : parts[i].modules) {
      others.erase(std::remove(others.begin(), others.end(), module), others.end());
    }
  }
  iteration.found_inf = agree(own, found, iteration, options) || iteration.scales_differ;
  iteration.found_anywhere =
      agree({{impl.worker.peer(impl.worker.info()), others}}, found, iteration, options) ||
      iteration.found_inf;
  iteration.is_unscaled = true;
}

bool GradScaler::agree(const std::vector<internal::ModulesAt>& places, bool found,
                       Iteration& iteration, const CallOptions& options) {
  GradScalerState& state = iteration.agreed;
  const std::vector<double> most = internal::agree(
      iteration.context, places, internal::LeafReducer::Subject::kUnscaling,
      {found ? 1.0 : 0.0, state.scale, -state.scale, -static_cast<double>(state.growth_tracker)},
      options);
  iteration.scales_differ = iteration.scales_differ || most[1] != -most[2];
  state.scale = -most[2];
  state.growth_tracker = static_cast<std::int64_t>(-most[3]);
  return most[0] > 0;
}

void GradScaler::unscale_(const DistributedOptimizer& optimizer, const autograd::Context& context,
                          const CallOptions& options) {
  if (!options_.enabled) return;
  Iteration& iteration = iteration_of(optimizer, context);
  if (iteration.is_unscaled) {
    refuse("GradScaler: the gradients of this optimizer were unscaled since the last update()");
  }
  unscale(optimizer, iteration, options);
}

std::optional<StepReport> GradScaler::step(const DistributedOptimizer& optimizer,
                                           const autograd::Context& context,
                                           const CallOptions& options) {
  if (!options_.enabled) return optimizer.step(context, options);
  Iteration& iteration = iteration_of(optimizer, context);
  if (!iteration.is_unscaled) unscale(optimizer, iteration, options);
  // Also when it throws: what it may have done is for repeat().
  iteration.is_stepped = true;
  if (iteration.found_inf) return std::nullopt;
  return optimizer.step(context, options);
}

void GradScaler::update() {
  if (!options_.enabled) return;
  const bool is_checked = std::any_of(iterations_.begin(), iterations_.end(),
                                      [](const auto& one) { return one.second.is_unscaled; });
  if (!is_checked) {
    refuse("GradScaler: there was neither a step() nor an unscale_() since the last update()");
  }
  bool found_inf = false;
  bool scales_differ = false;
  for (const auto& [optimizer, iteration] : iterations_) {
    if (!iteration.is_unscaled) continue;
    found_inf = found_inf || iteration.found_anywhere;
    scales_differ = scales_differ || iteration.scales_differ;
    state_.scale = std::min(state_.scale, iteration.agreed.scale);
    state_.growth_tracker = std::min(state_.growth_tracker, iteration.agreed.growth_tracker);
  }
  iterations_.clear();
  if (scales_differ) {
    state_.growth_tracker = 0;
    return;
  }
  if (found_inf) {
    state_.growth_tracker = 0;
    // A scale of 0 would make all gradients NaN, permanently.
    const double smaller = state_.scale * options_.backoff_factor;
    if (smaller > 0) state_.scale = smaller;
    return;
  }
  if (++state_.growth_tracker < options_.growth_interval) return;
  state_.growth_tracker = 0;
  const double larger = state_.scale * options_.growth_factor;
  // As LibTorch, whose scale is a float.
  if (std::isfinite(static_cast<float>(larger))) state_.scale = larger;
}

void GradScaler::load_state(const GradScalerState& state) {
  check_scale("scale", state.scale);
  check(state.growth_tracker >= 0, "growth_tracker", static_cast<double>(state.growth_tracker),
        "0 or more");
  state_ = state;
  iterations_.clear();
}

}  // namespace sinew::optim
