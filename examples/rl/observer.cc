#include "observer.h"

#include "agent.h"

namespace rl {

std::int64_t Observer::run_episode(const sinew::RRef<Agent>& agent, std::int64_t max_steps) {
  State state = environment_.reset();
  for (std::int64_t step = 1; step <= max_steps; ++step) {
    const Push action = agent.call<&Agent::select_action>(id_, state);
    const CartPole::StepResult result = environment_.step(action);
    agent.call<&Agent::report_reward>(id_, result.reward);
    if (result.done) return step;
    state = result.state;
  }
  return max_steps;
}

}  // namespace rl
