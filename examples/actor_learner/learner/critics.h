#pragma once

#include <cstdint>
#include <utility>

#include "ATen/core/Tensor.h"
#include "shared/transitions.h"
#include "torch/nn/modules/container/sequential.h"

namespace actor_learner {

/// Two networks that say what an action is worth, each with two hidden layers of 64 units.
class Critics : public torch::nn::Module {
 public:
  static constexpr std::int64_t kHidden = 64;

  /// Draws its parameters from LibTorch's own generator.
  Critics();

  /// What each says of {rows, kObservationSize} and {rows, kActionSize}: {rows}.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& observations,
                                            const at::Tensor& actions);
  /// The lower one of both.
  at::Tensor lower(const at::Tensor& observations, const at::Tensor& actions);

 private:
  torch::nn::Sequential first_;
  torch::nn::Sequential second_;
};

/// Makes `targets` the mean of what they are and of `critics`, which counts `tau` (0 to 1).
void follow(const Critics& targets, const Critics& critics, double tau);

}  // namespace actor_learner
