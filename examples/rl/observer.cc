#include "observer.h"

#include "agent.h"

namespace rl {

Observer::Observer(const ObserverSettings& settings)
    : settings_(settings), environment_(settings.seed) {}

std::int64_t Observer::run_episode(const sinew::RRef<Agent>& agent, std::int64_t max_steps) {
  State state = environment_.reset();
  sinew::Future<void> reported;
  for (std::int64_t step = 1; step <= max_steps; ++step) {
    const Push action = next_action(agent, state);
    const CartPole::StepResult result = environment_.step(action);
    // The one before must have arrived: calls that are on the way together may overtake each other.
    if (reported.valid()) reported.wait();
    reported = sinew::rpc_async<&Agent::report_reward>(agent, settings_.id, result.reward);
    if (result.done || step == max_steps || settings_.reward_calls == RewardCalls::kOneByOne) {
      reported.wait();
    }
    if (result.done) return step;
    state = result.state;
  }
  return max_steps;
}

Push Observer::next_action(const sinew::RRef<Agent>& agent, const State& state) const {
  return settings_.action_calls == ActionCalls::kBatched
             ? sinew::rpc_sync<&Agent::select_action_batched>(agent, settings_.id, state)
             : sinew::rpc_sync<&Agent::select_action>(agent, settings_.id, state);
}

}  // namespace rl
