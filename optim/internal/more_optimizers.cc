#include "sinew/optim/internal/more_optimizers.h"

#include <cmath>

#include "ATen/Functions.h"
#include "sinew/optim/internal/field_checker.h"

namespace sinew::internal {
namespace {

/// Zeros at the parameter's first step.
at::Tensor& zeros_at_first(optim::ParameterState& state, const char* name,
                           const at::Tensor& parameter) {
  at::Tensor& tensor = state[name];
  if (!tensor.defined()) tensor = at::zeros_like(parameter, at::MemoryFormat::Preserve);
  return tensor;
}

double count_step(optim::ParameterState& state) {
  at::Tensor& step = state["step"];
  if (!step.defined()) step = at::zeros({}, at::kDouble);
  step.add_(1);
  return step.item<double>();
}

}  // namespace

void Adadelta::check(const optim::AdadeltaOptions& options) {
  const FieldChecker fields("Adadelta");
  fields.require(options.rho >= 0 && options.rho <= 1, "rho", options.rho, "from 0 to 1");
  fields.not_negative("eps", options.eps);
  fields.not_negative("weight_decay", options.weight_decay);
}

void Adamax::check(const optim::AdamaxOptions& options) {
  const FieldChecker fields("Adamax");
  fields.fractions("betas", options.betas);
  fields.not_negative("eps", options.eps);
  fields.not_negative("weight_decay", options.weight_decay);
}

void Rprop::check(const optim::RpropOptions& options) {
  const FieldChecker fields("Rprop");
  const auto [down, up] = options.etas;
  fields.require(down > 0 && down < 1, "etas", down, "between 0 and 1 (the first)");
  fields.require(up > 1 && std::isfinite(up), "etas", up, "more than 1 (the second)");
  const auto [least, most] = options.step_sizes;
  fields.not_negative("step_sizes", least);
  fields.require(most >= least, "step_sizes", most, "not less than the first (the second)");
}

void Adadelta::update(const optim::AdadeltaOptions& options, at::Tensor& parameter,
                      const at::Tensor& gradient, optim::ParameterState& state) {
  at::Tensor& square_avg = zeros_at_first(state, "square_avg", parameter);
  at::Tensor& acc_delta = zeros_at_first(state, "acc_delta", parameter);
  const at::Tensor grad =
      options.weight_decay != 0 ? gradient.add(parameter, options.weight_decay) : gradient;
  square_avg.mul_(options.rho).addcmul_(grad, grad, 1 - options.rho);
  const at::Tensor std = square_avg.add(options.eps).sqrt_();
  const at::Tensor delta = acc_delta.add(options.eps).sqrt_().div_(std).mul_(grad);
  acc_delta.mul_(options.rho).addcmul_(delta, delta, 1 - options.rho);
  parameter.add_(delta, -options.lr);
}

void Adamax::update(const optim::AdamaxOptions& options, at::Tensor& parameter,
                    const at::Tensor& gradient, optim::ParameterState& state) {
  const auto [beta1, beta2] = options.betas;
  const double step = count_step(state);
  at::Tensor& exp_avg = zeros_at_first(state, "exp_avg", parameter);
  at::Tensor& exp_inf = zeros_at_first(state, "exp_inf", parameter);
  const at::Tensor grad =
      options.weight_decay != 0 ? gradient.add(parameter, options.weight_decay) : gradient;
  exp_avg.mul_(beta1).add_(grad, 1 - beta1);
  exp_inf.copy_(at::maximum(exp_inf.mul(beta2), grad.abs().add_(options.eps)));
  parameter.addcdiv_(exp_avg, exp_inf, -options.lr / (1 - std::pow(beta1, step)));
}

void Rprop::update(const optim::RpropOptions& options, at::Tensor& parameter,
                   const at::Tensor& gradient, optim::ParameterState& state) {
  const auto [down, up] = options.etas;
  const auto [least, most] = options.step_sizes;
  at::Tensor& previous = zeros_at_first(state, "prev", parameter);
  at::Tensor& step_size = state["step_size"];
  if (!step_size.defined()) step_size = at::full_like(parameter, options.lr);
  const at::Tensor agreement = gradient.mul(previous).sign_();
  const at::Tensor factor = at::where(
      agreement.gt(0), at::full_like(agreement, up),
      at::where(agreement.lt(0), at::full_like(agreement, down), at::ones_like(agreement)));
  step_size.mul_(factor).clamp_(least, most);
  // A gradient that has turned round is left out this once.
  const at::Tensor grad = gradient.masked_fill(agreement.lt(0), 0);
  parameter.addcmul_(grad.sign(), step_size, -1);
  previous.copy_(grad);
}

}  // namespace sinew::internal
