#pragma once

#include <cstdint>

#include "sinew/examples/rl/cart_pole.h"
#include "sinew/sinew.h"

namespace sinew::bench::rollout {

class Agent;

/// How an observer asks for actions.
enum class ActionCalls {
  /// Each request is answered by itself.
  kSingle,
  /// The agent answers the requests of all observers together.
  kBatched,
};

/// What the agent tells an observer when it makes it.
struct ObserverSettings {
  /// Names it in calls to the agent.
  std::int64_t id = 0;
  std::uint64_t seed = 0;
  ActionCalls action_calls = ActionCalls::kSingle;
};

/// Plays CartPole by the agent's orders. Lives at an observer's process; made and called by the
/// agent through an RRef.
class Observer {
 public:
  explicit Observer(const ObserverSettings& settings);

  /// Plays one episode, of `max_steps` steps at most: for each it asks `agent` for an action and
  /// reports the reward, one after the other. Returns the number of steps.
  std::int64_t run_episode(const RRef<Agent>& agent, std::int64_t max_steps);

 private:
  ::rl::Push next_action(const RRef<Agent>& agent, const ::rl::State& state) const;

  const ObserverSettings settings_;
  ::rl::CartPole environment_;
};

}  // namespace sinew::bench::rollout

SINEW_STRUCT(sinew::bench::rollout::ObserverSettings, id, seed, action_calls);
SINEW_SERVICE(sinew::bench::rollout::Observer, (sinew::bench::rollout::ObserverSettings),
              run_episode);
