#include "observer.h"

#include "agent.h"

namespace rl {

std::int64_t Observer::run_episode(const sinew::RRef<Agent>& agent, std::int64_t max_steps) {
  if (many_) return many_->run_episode(agent, max_steps);
  State state = environment_.reset();
  sinew::Future<void> reported = sinew::make_ready_future();
  std::int64_t steps = 0;
  for (bool done = false; !done && steps < max_steps; ++steps) {
    const Push action = agent.call<&Agent::select_action>(id_, state);
    reported.wait();  // on its way while the agent decided
    const CartPole::StepResult result = environment_.step(action);
    reported = agent.async<&Agent::report_reward>(id_, result.reward);
    state = result.state;
    done = result.done;
  }
  reported.wait();
  return steps;
}

}  // namespace rl
