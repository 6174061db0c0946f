#pragma once

#include <cstdint>
#include <vector>

#include "actor/transition_queue.h"
#include "shared/learner.h"
#include "shared/pendulum.h"
#include "shared/policy.h"
#include "sinew/optim/publication.h"

namespace actor_learner {

/// A pendulum and the policy that swings it. Not thread-safe.
class Player {
 public:
  /// `seed` decides about starts and actions.
  explicit Player(std::uint64_t seed);

  /// Throws std::invalid_argument unless they are such a policy's.
  void use(const sinew::optim::Weights& weights);
  /// Those that it plays by; 0.0 until it has some, and plays by chance.
  std::uint64_t version() const { return version_; }

  /// Plays one step; the one after the last of an episode begins the next.
  Step step();

 private:
  Pendulum pendulum_;
  Policy policy_;
  at::Generator random_;
  std::uint64_t version_ = 0;
  Pendulum::Observation observation_;
  double return_ = 0;
};

/// As the learner wants them.
Played to_played(const std::vector<Step>& steps);

}  // namespace actor_learner
