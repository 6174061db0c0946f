#include "sinew/benchmarks/rollout/observer.h"

#include "sinew/benchmarks/rollout/agent.h"

namespace sinew::bench::rollout {

using ::rl::CartPole;
using ::rl::Push;
using ::rl::State;

Observer::Observer(const ObserverSettings& settings)
    : settings_(settings), environment_(settings.seed) {}

std::int64_t Observer::run_episode(const RRef<Agent>& agent, std::int64_t max_steps) {
  State state = environment_.reset();
  for (std::int64_t step = 1; step <= max_steps; ++step) {
    const CartPole::StepResult result = environment_.step(next_action(agent, state));
    agent.call<&Agent::report_reward>(settings_.id, result.reward);
    if (result.done) return step;
    state = result.state;
  }
  return max_steps;
}

Push Observer::next_action(const RRef<Agent>& agent, const State& state) const {
  return settings_.action_calls == ActionCalls::kBatched
             ? agent.call<&Agent::select_action_batched>(settings_.id, state)
             : agent.call<&Agent::select_action>(settings_.id, state);
}

}  // namespace sinew::bench::rollout
