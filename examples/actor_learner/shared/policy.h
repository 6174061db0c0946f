#pragma once

#include <cstdint>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"
#include "shared/transitions.h"
#include "sinew/optim/state_dict.h"
#include "torch/nn/modules/linear.h"

namespace actor_learner {

/// What to do: a Gaussian whose mean and deviation depend on the observation, squashed by tanh to
/// -1 to 1. Two hidden layers of 64 units. Not thread-safe.
class Policy : public torch::nn::Module {
 public:
  static constexpr std::int64_t kHidden = 64;

  /// Draws its parameters from LibTorch's own generator (torch::manual_seed()).
  Policy();

  struct Sample {
    /// {rows, kActionSize}
    at::Tensor actions;
    /// {rows}
    at::Tensor log_probabilities;
  };
  /// For {rows, kObservationSize}. Gradients flow through both parts of the result.
  Sample sample(const at::Tensor& observations, at::Generator& random);
  /// The actions without chance: {rows, kActionSize}.
  at::Tensor mean_actions(const at::Tensor& observations);

 private:
  torch::nn::Linear first_;
  torch::nn::Linear second_;
  torch::nn::Linear mean_;
  torch::nn::Linear log_deviation_;
};

/// By their names. Throws std::invalid_argument, and changes nothing, unless they fit.
void set_parameters(Policy& policy, const sinew::optim::StateDict& parameters);

/// A generator of random numbers of its own.
at::Generator make_random(std::uint64_t seed);

}  // namespace actor_learner
