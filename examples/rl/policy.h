#pragma once

#include "torch/nn.h"

namespace rl {

/// Maps states to the probabilities of the two pushes.
struct PolicyImpl : torch::nn::Module {
  PolicyImpl() {
    register_module("affine1", affine1);
    register_module("dropout", dropout);
    register_module("affine2", affine2);
  }

  /// `states` has shape {n, 4}, and the result {n, 2}. Dropout is on while the policy plays: it is
  /// part of how it explores.
  at::Tensor forward(const at::Tensor& states) {
    const at::Tensor hidden = torch::relu(dropout(affine1(states)));
    return torch::softmax(affine2(hidden), 1);
  }
  /// The same with a given dropout: what each hidden unit is multiplied with, {n, 128}.
  at::Tensor forward(const at::Tensor& states, const at::Tensor& drawn) {
    const at::Tensor hidden = torch::relu(affine1(states) * drawn);
    return torch::softmax(affine2(hidden), 1);
  }
  /// Such a dropout, with the probabilities of the layer: 0, or 1 / (1 - 0.6). The layer itself
  /// draws by bernoulli_(), which takes three times as long.
  at::Tensor draw_dropout(std::int64_t rows) const {
    const double kept = 1 - dropout->options.p();
    return torch::rand({rows, 128}).lt_(kept).mul_(1 / kept);
  }

  torch::nn::Linear affine1{4, 128};
  torch::nn::Dropout dropout{0.6};
  torch::nn::Linear affine2{128, 2};
};
TORCH_MODULE(Policy);

}  // namespace rl
