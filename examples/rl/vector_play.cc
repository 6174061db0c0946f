#include "vector_play.h"

#include <utility>

#include "agent.h"

namespace rl {

VectorPlay::VectorPlay(std::int64_t observer, std::int32_t environments, std::uint64_t seed)
    : observer_(observer),
      groups_{CartPoles(0, environments / 2, seed),
              CartPoles(environments / 2, environments - environments / 2, seed)} {}

std::int64_t VectorPlay::run_episode(const sinew::RRef<Agent>& agent, std::int64_t max_steps) {
  for (CartPoles& group : groups_) group.reset(max_steps);
  const auto ask = [&](const CartPoles& group) {
    return agent.async<&Agent::select_actions>(observer_, group.states());
  };
  Earnings earned;
  CartPoles* asking = &groups_[0];
  CartPoles* other = &groups_[1];
  // One call at a time, so that the agent sees the groups in the order in which they step.
  sinew::Future<at::Tensor> asked = ask(*asking);
  while (!asking->is_over()) {
    const at::Tensor actions = asked.wait();
    const bool is_other_playing = !other->is_over();
    if (is_other_playing) asked = ask(*other);  // on its way while this group steps
    const Earnings step = asking->step(actions);
    for (std::size_t i = 0; i < step.rewards.size(); ++i) {
      earned.add(step.environments[i], step.rewards[i]);
    }
    if (is_other_playing) {
      std::swap(asking, other);
    } else if (!asking->is_over()) {
      asked = ask(*asking);
    }
  }
  const auto steps = static_cast<std::int64_t>(earned.rewards.size());
  agent.call<&Agent::report_rewards>(observer_, earned);
  return steps;
}

}  // namespace rl
