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
    return forward(states, draw_dropout(states.size(0)));
  }
  /// What dropout does to the hidden units of `rows` states, {rows, 128}: each is multiplied with 0
  /// or with 1 / (1 - 0.6).
  at::Tensor draw_dropout(std::int64_t rows) { return dropout(torch::ones({rows, 128})); }
  /// The same with a dropout that was drawn before.
  at::Tensor forward(const at::Tensor& states, const at::Tensor& drawn) {
    const at::Tensor hidden = torch::relu(affine1(states) * drawn);
    return torch::softmax(affine2(hidden), 1);
  }

  torch::nn::Linear affine1{4, 128};
  torch::nn::Dropout dropout{0.6};
  torch::nn::Linear affine2{128, 2};
};
TORCH_MODULE(Policy);

}  // namespace rl
