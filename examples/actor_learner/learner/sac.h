#pragma once

#include <cstdint>
#include <memory>

#include "ATen/core/Generator.h"
#include "learner/critics.h"
#include "shared/policy.h"
#include "shared/transitions.h"
#include "torch/optim/adam.h"

namespace actor_learner {

struct SacSettings {
  /// Discount of a step.
  double gamma = 0.99;
  double learning_rate = 1e-3;
  /// How far the targets follow their critics in each update.
  double tau = 0.005;
  /// What rewards are multiplied by: the entropy counts as many units beside them.
  double reward_scale = 0.1;
  /// The entropy that the temperature aims at; by rule of thumb minus the number of actions.
  double target_entropy = -static_cast<double>(kActionSize);
};

/// Soft actor-critic: T. Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018
/// (arXiv:1812.05905). Two critics, of which the lower value counts; targets that follow them
/// slowly; a temperature that holds the policy's entropy at a target. Not thread-safe.
class Sac {
 public:
  /// `seed` decides about the parameters and all that is drawn.
  Sac(const SacSettings& settings, std::uint64_t seed);

  /// What an update minimised, before its steps.
  struct Losses {
    double critics = 0;
    double policy = 0;
    double temperature = 0;
  };
  /// One step of each part.
  Losses update(const Transitions& batch);

  Policy& policy() { return *policy_; }
  const Policy& policy() const { return *policy_; }
  Critics& critics() { return *critics_; }
  const Critics& critics() const { return *critics_; }
  const Critics& targets() const { return *targets_; }
  /// What entropy is worth, in units of scaled reward.
  double temperature() const;

  void save(torch::serialize::OutputArchive& archive) const;
  /// Throws when that is none of these. The settings of this one go on counting.
  void load(torch::serialize::InputArchive& archive);

 private:
  /// What the critics are to say, {rows}.
  at::Tensor wanted_values(const Transitions& batch);
  double update_critics(const Transitions& batch);
  double update_policy(const Transitions& batch, const Policy::Sample& sample);
  double update_temperature(const at::Tensor& log_probabilities);

  const SacSettings settings_;
  at::Generator random_;
  std::shared_ptr<Policy> policy_;
  std::shared_ptr<Critics> critics_;
  std::shared_ptr<Critics> targets_;
  /// A scalar; its logarithm, so that no step makes it negative.
  at::Tensor log_temperature_;
  torch::optim::Adam policy_optimizer_;
  torch::optim::Adam critics_optimizer_;
  torch::optim::Adam temperature_optimizer_;
};

}  // namespace actor_learner
