#pragma once

#include <cstdint>

#include "cart_pole.h"
#include "sinew/sinew.h"

namespace rl {

class Agent;

/// How an observer asks for actions.
enum class ActionCalls {
  /// Each request is answered by itself.
  kSingle,
  /// The agent answers the requests of all observers together.
  kBatched,
};

/// When an observer makes its next step.
enum class RewardCalls {
  /// While its reward is still on the way: it asks for the next action at the same time.
  kOverlapped,
  /// When the agent has its reward.
  kOneByOne,
};

/// What the agent tells an observer when it makes it.
struct ObserverSettings {
  /// Names it in calls to the agent.
  std::int64_t id = 0;
  std::uint64_t seed = 0;
  ActionCalls action_calls = ActionCalls::kSingle;
  RewardCalls reward_calls = RewardCalls::kOverlapped;
};

/// Plays CartPole by the agent's orders. Lives at an observer's process; made and called by the
/// agent through an RRef.
class Observer {
 public:
  explicit Observer(const ObserverSettings& settings);

  /// Plays one episode, of `max_steps` steps at most: asks `agent` for each action and reports each
  /// reward to it. Returns the number of steps.
  std::int64_t run_episode(const sinew::RRef<Agent>& agent, std::int64_t max_steps);

 private:
  Push next_action(const sinew::RRef<Agent>& agent, const State& state) const;

  const ObserverSettings settings_;
  CartPole environment_;
};

}  // namespace rl

// What travels between agent and observers, and under which names.
template <>
struct sinew::Codec<rl::ObserverSettings>
    : sinew::StructCodec<rl::ObserverSettings, &rl::ObserverSettings::id,
                         &rl::ObserverSettings::seed, &rl::ObserverSettings::action_calls,
                         &rl::ObserverSettings::reward_calls> {};
SINEW_SERVICE(rl::Observer, (rl::ObserverSettings));
SINEW_METHOD(rl::Observer::run_episode);
