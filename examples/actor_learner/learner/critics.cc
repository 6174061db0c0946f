#include "learner/critics.h"

#include "ATen/ATen.h"
#include "torch/nn/modules/activation.h"
#include "torch/nn/modules/linear.h"

namespace actor_learner {
namespace {

torch::nn::Sequential network() {
  return torch::nn::Sequential(torch::nn::Linear(kObservationSize + kActionSize, Critics::kHidden),
                               torch::nn::ReLU(),
                               torch::nn::Linear(Critics::kHidden, Critics::kHidden),
                               torch::nn::ReLU(), torch::nn::Linear(Critics::kHidden, 1));
}

}  // namespace

Critics::Critics()
    : first_(register_module("first", network())), second_(register_module("second", network())) {}

std::pair<at::Tensor, at::Tensor> Critics::forward(const at::Tensor& observations,
                                                   const at::Tensor& actions) {
  const at::Tensor inputs = at::cat({observations, actions}, 1);
  return {first_->forward(inputs).squeeze(1), second_->forward(inputs).squeeze(1)};
}

at::Tensor Critics::lower(const at::Tensor& observations, const at::Tensor& actions) {
  const auto [first, second] = forward(observations, actions);
  return at::minimum(first, second);
}

void follow(const Critics& targets, const Critics& critics, double tau) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> from = critics.parameters();
  const std::vector<at::Tensor> to = targets.parameters();
  for (std::size_t i = 0; i < to.size(); ++i) to[i].lerp_(from[i], tau);
}

}  // namespace actor_learner
