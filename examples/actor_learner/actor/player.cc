#include "actor/player.h"

#include <algorithm>

#include "ATen/ATen.h"

namespace actor_learner {

Player::Player(std::uint64_t seed)
    : pendulum_(seed), random_(make_random(seed)), observation_(pendulum_.reset()) {}

void Player::use(const sinew::optim::Weights& weights) {
  set_parameters(policy_, weights.tensors);
  version_ = weights.version;
}

Step Player::step() {
  const at::NoGradGuard no_grad;
  Step step;
  step.observation = observation_;
  const at::Tensor row = at::from_blob(step.observation.data(), {1, kObservationSize});
  step.action = policy_.sample(row, random_).actions.item<float>();
  const Pendulum::StepResult result = pendulum_.step(Pendulum::kMaxTorque * step.action);
  step.reward = static_cast<float>(result.reward);
  step.next_observation = result.observation;
  return_ += result.reward;
  observation_ = result.observation;
  if (result.truncated) {
    step.episode_return = return_;
    return_ = 0;
    observation_ = pendulum_.reset();
  }
  return step;
}

Played to_played(const std::vector<Step>& steps) {
  const auto count = static_cast<std::int64_t>(steps.size());
  Played played;
  played.transitions = {at::empty({count, kObservationSize}), at::empty({count, kActionSize}),
                        at::empty({count}), at::empty({count, kObservationSize}),
                        // No state of a pendulum is the end of it.
                        at::zeros({count})};
  auto* observation = played.transitions.observations.data_ptr<float>();
  auto* action = played.transitions.actions.data_ptr<float>();
  auto* reward = played.transitions.rewards.data_ptr<float>();
  auto* next = played.transitions.next_observations.data_ptr<float>();
  for (const Step& step : steps) {
    observation = std::copy(step.observation.begin(), step.observation.end(), observation);
    *action++ = step.action;
    *reward++ = step.reward;
    next = std::copy(step.next_observation.begin(), step.next_observation.end(), next);
    if (step.episode_return) played.returns.push_back(*step.episode_return);
  }
  return played;
}

}  // namespace actor_learner
