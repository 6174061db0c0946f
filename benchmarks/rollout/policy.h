#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/examples/rl/cart_pole.h"

namespace sinew::bench::rollout {

/// What the policy chose in one or several states, and what it must remember of that in order to
/// learn from it.
struct Decision {
  /// One for each state.
  std::vector<::rl::Push> actions;
  /// The states, shape {states, 4}, float.
  at::Tensor inputs;
  /// What dropout did to the hidden units, shape {states, 128}, float: 0, or the factor that it
  /// scales the rest by.
  at::Tensor masks;
};

/// One action that was taken, and how much better than usual it turned out.
struct Experience {
  /// Counts the states of all decisions that are learned from, in order.
  std::int64_t row = 0;
  ::rl::Push action = ::rl::Push::kLeft;
  double advantage = 0;
};

/// A small network that maps a state to the probabilities of the two pushes: 4 inputs, 128 hidden
/// units with dropout 0.6 and ReLU, softmax over 2 outputs. Learns by REINFORCE with Adam. Not
/// thread-safe.
class Policy {
 public:
  static constexpr double kLearningRate = 1e-2;

  explicit Policy(std::uint64_t seed);
  ~Policy();

  /// Draws an action for each state, with one forward pass. Dropout is on: it is part of how the
  /// policy explores.
  Decision decide(const std::vector<::rl::State>& states);

  /// One step of Adam down the gradient of -sum(advantage * log(probability of the action)).
  /// `decisions` are those that `experiences` speak of; there must have been no other call of
  /// learn() since they were made.
  void learn(const std::vector<Decision>& decisions, const std::vector<Experience>& experiences);

 private:
  struct Network;
  std::unique_ptr<Network> network_;
};

}  // namespace sinew::bench::rollout
