#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/autograd/context.h"
#include "sinew/optim/distributed_optimizer.h"
#include "sinew/optim/grad_scaler_state.h"
#include "sinew/rpc/call_options.h"

namespace sinew::internal {
struct ModulesAt;
}  // namespace sinew::internal

namespace sinew::optim {

struct GradScalerOptions {
  double init_scale = 65536;
  /// Times this after `growth_interval` steps in a row without infinities; more than 1.
  double growth_factor = 2;
  /// Times this after a step with infinities; between 0 and 1.
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;
  /// Otherwise losses and gradients stay as they are, and no step is left out.
  bool enabled = true;
};

/// Scales losses, so that small gradients of half precision do not vanish, and leaves out steps
/// whose gradients have become infinite or NaN at any owner. That of torch.cuda.amp.GradScaler.
///
///     sinew::optim::GradScaler scaler;
///     ...
///     sinew::autograd::backward(context, {scaler.scale(loss)});
///     scaler.unscale_(optimizer, context);                             // only for the next line
///     sinew::optim::clip_grad_norm_(context, parameters, 1.0);
///     scaler.step(optimizer, context);
///     scaler.update();
///
/// Each trainer has one of its own. When a data-parallel module (sinew/parallel) has reduced
/// gradients in the context, all of its ranks call unscale_() or step() for the same optimizers,
/// and all have one scale. Where some of its gradients are the optimizer's, an infinity on one rank
/// leaves the step out on all of them.
///
/// The scales of ranks may differ all the same: one has run out of inputs in join(), or has loaded
/// another state. Then means of what they have scaled are of no use: such a step is left out, and
/// all go on with the smallest scale.
///
/// Not thread-safe. What blocks throws RpcError.
class GradScaler {
 public:
  /// Throws RpcError kInvalidArgument for options that make no sense.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// The loss times the scale.
  at::Tensor scale(const at::Tensor& loss) const;
  /// Divides the gradients that the context has for the parameters of the optimizer by the scale,
  /// at all owners at once. step() does it unless it was done. Blocks. When it throws because an
  /// owner did not answer it may be called again: no gradient is divided twice. kFailedPrecondition
  /// when it was done since the last update().
  void unscale_(const DistributedOptimizer& optimizer, const autograd::Context& context,
                const CallOptions& options = {});
  /// A step of the optimizer, or none, at no owner, when a gradient of any owner is infinite or
  /// NaN: then nothing is returned. Blocks. Throws as DistributedOptimizer::step(), after which its
  /// repeat() may be called; kFailedPrecondition when there was a step since the last update(), or
  /// when unscale_() was called for another context.
  std::optional<StepReport> step(const DistributedOptimizer& optimizer,
                                 const autograd::Context& context, const CallOptions& options = {});
  /// After the step of each optimizer: goes on with the scale of the next iteration. Throws
  /// kFailedPrecondition when there was neither step() nor unscale_().
  void update();

  double get_scale() const { return state_.scale; }
  const GradScalerOptions& options() const { return options_; }
  /// For SaveOptions::grad_scaler; and what Checkpoint::grad_scaler has. Throws RpcError
  /// kInvalidArgument for one that makes no sense.
  const GradScalerState& state() const { return state_; }
  void load_state(const GradScalerState& state);

 private:
  /// What became of the gradients of one optimizer since the last update().
  struct Iteration {
    autograd::ContextId context;
    /// The same when it is tried again.
    std::uint64_t operation = 0;
    bool is_unscaled = false;
    bool is_stepped = false;
    /// That leaves the step out.
    bool found_inf = false;
    /// Here or on another rank; that changes the scale.
    bool found_anywhere = false;
    bool scales_differ = false;
    /// The least of what the ranks have.
    GradScalerState agreed;
  };
  Iteration& iteration_of(const DistributedOptimizer& optimizer, const autograd::Context& context);
  void unscale(const DistributedOptimizer& optimizer, Iteration& iteration,
               const CallOptions& options) const;
  /// Whether a rank of these modules has found an infinity: `found` where there are none.
  static bool agree(const std::vector<internal::ModulesAt>& places, bool found,
                    Iteration& iteration, const CallOptions& options);

  const GradScalerOptions options_;
  GradScalerState state_;
  // By optimizer.
  std::map<std::shared_ptr<DistributedOptimizer::Impl>, Iteration> iterations_;
};

}  // namespace sinew::optim
