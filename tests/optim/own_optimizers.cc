#include "sinew/tests/optim/own_optimizers.h"

#include <torch/serialize/archive.h>

#include <string>
#include <tuple>

#include "ATen/ATen.h"
#include "ATen/core/grad_mode.h"
#include "sinew/rpc/base/error.h"

namespace testoptim {

void Lion::check(const LionOptions& options) {
  if (std::get<0>(options.betas) < 1 && std::get<1>(options.betas) < 1) return;
  throw sinew::RpcError(sinew::ErrorCode::kInvalidArgument, "Lion: betas must be less than 1");
}

void Lion::update(const LionOptions& options, at::Tensor& parameter, const at::Tensor& gradient,
                  sinew::optim::ParameterState& state) {
  const auto [beta1, beta2] = options.betas;
  at::Tensor& average = state["average"];
  if (!average.defined()) average = at::zeros_like(parameter);
  const at::Tensor direction = (average * beta1 + gradient * (1 - beta1)).sign_();
  parameter.mul_(1 - options.lr * options.weight_decay).sub_(direction, options.lr);
  average.mul_(beta2).add_(gradient, 1 - beta2);
}

HeavyBall::HeavyBall(std::vector<torch::optim::OptimizerParamGroup> groups,
                     TorchHeavyBallOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<TorchHeavyBallOptions>(defaults)) {
  for (const auto& group : param_groups_) {
    for (const at::Tensor& parameter : group.params()) {
      velocities_.push_back(at::zeros_like(parameter));
    }
  }
}

at::Tensor HeavyBall::step(LossClosure) {
  const at::AutoGradMode no_grad(false);
  std::size_t i = 0;
  for (auto& group : param_groups_) {
    const auto& options = static_cast<const TorchHeavyBallOptions&>(group.options());
    for (at::Tensor& parameter : group.params()) {
      at::Tensor& velocity = velocities_[i++];
      if (!parameter.grad().defined()) continue;
      const at::Tensor gradient =
          parameter.grad().is_sparse() ? parameter.grad().to_dense() : parameter.grad();
      velocity.mul_(1 - options.friction).sub_(gradient, options.lr);
      parameter.add_(velocity);
    }
  }
  return {};
}

void HeavyBall::save(torch::serialize::OutputArchive& archive) const {
  for (std::size_t i = 0; i < velocities_.size(); ++i) {
    archive.write("velocity" + std::to_string(i), velocities_[i], /*is_buffer=*/true);
  }
}

void HeavyBall::load(torch::serialize::InputArchive& archive) {
  for (std::size_t i = 0; i < velocities_.size(); ++i) {
    archive.read("velocity" + std::to_string(i), velocities_[i], /*is_buffer=*/true);
  }
}

Forgetful::Forgetful(std::vector<torch::optim::OptimizerParamGroup> groups,
                     sinew::optim::FieldOptions<ForgetfulOptions> defaults)
    : Optimizer(std::move(groups),
                std::make_unique<sinew::optim::FieldOptions<ForgetfulOptions>>(defaults)) {}

at::Tensor Forgetful::step(LossClosure) {
  const at::AutoGradMode no_grad(false);
  ++steps_;
  for (auto& group : param_groups_) {
    for (at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      parameter.sub_(parameter.grad(), group.options().get_lr() / static_cast<double>(steps_));
    }
  }
  return {};
}

Decayed::Decayed(std::vector<torch::optim::OptimizerParamGroup> groups,
                 sinew::optim::FieldOptions<DecayedOptions> defaults)
    : Optimizer(std::move(groups),
                std::make_unique<sinew::optim::FieldOptions<DecayedOptions>>(defaults)) {}

at::Tensor Decayed::step(LossClosure) {
  const at::AutoGradMode no_grad(false);
  for (auto& group : param_groups_) {
    const DecayedOptions& options =
        static_cast<const sinew::optim::FieldOptions<DecayedOptions>&>(group.options()).fields();
    for (at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      parameter.mutable_grad().add_(parameter, options.weight_decay);
      parameter.sub_(parameter.grad(), options.lr);
    }
  }
  return {};
}

void add_optimizers(sinew::MethodTable& methods) {
  methods.serve<Lion, HeavyBall, Forgetful, Decayed>();
}

}  // namespace testoptim
