#include "sinew/optim/grad_scaler.h"

#include <algorithm>
#include <cmath>

#include "ATen/core/Tensor.h"
#include "absl/strings/str_format.h"
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
  const std::vector<std::uint64_t> found =
      optimizer.unscale(iteration.context, 1 / state_.scale, iteration.operation, options);
  iteration.found_inf =
      std::any_of(found.begin(), found.end(), [](std::uint64_t count) { return count > 0; });
  iteration.is_unscaled = true;
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
  const bool found_inf = std::any_of(iterations_.begin(), iterations_.end(),
                                     [](const auto& one) { return one.second.found_inf; });
  iterations_.clear();
  if (found_inf) {
    state_.growth_tracker = 0;
    // A scale of 0 would make all gradients NaN, for ever.
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
