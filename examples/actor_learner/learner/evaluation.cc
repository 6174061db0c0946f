#include "learner/evaluation.h"

#include <algorithm>

#include "ATen/ATen.h"
#include "shared/pendulum.h"

namespace actor_learner {

std::vector<double> evaluate(Policy& policy, std::int64_t episodes, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  const auto count = static_cast<std::size_t>(episodes);
  std::vector<Pendulum> pendulums;
  at::Tensor observations = at::empty({episodes, kObservationSize});
  const auto observe = [&](std::size_t i, const Pendulum::Observation& observation) {
    std::copy(observation.begin(), observation.end(),
              observations.data_ptr<float>() + i * observation.size());
  };
  for (std::size_t i = 0; i < count; ++i) {
    pendulums.emplace_back(seed * 1'000'003 + i);
    observe(i, pendulums.back().reset());
  }
  std::vector<double> returns(count, 0);
  // All of them at once: the network takes as long for many rows as for one.
  for (int step = 0; step < Pendulum::kSteps; ++step) {
    const at::Tensor actions = policy.mean_actions(observations);
    for (std::size_t i = 0; i < count; ++i) {
      const Pendulum::StepResult result =
          pendulums[i].step(Pendulum::kMaxTorque * actions.data_ptr<float>()[i]);
      returns[i] += result.reward;
      observe(i, result.observation);
    }
  }
  return returns;
}

}  // namespace actor_learner
