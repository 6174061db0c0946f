#pragma once

#include <cstdint>
#include <optional>

#include "cart_pole.h"
#include "sinew/rref/remote.h"
#include "vector_play.h"

namespace rl {

class Agent;

/// What the agent tells an observer when it makes it.
struct ObserverSettings {
  /// Names it in calls to the agent.
  std::int64_t id = 0;
  std::uint64_t seed = 0;
  /// How many it plays at once.
  std::int32_t environments = 1;
};

/// Plays CartPole by the agent's orders. Lives at an observer's process; made and called by the
/// agent through an RRef.
class Observer {
 public:
  explicit Observer(const ObserverSettings& settings)
      : id_(settings.id), environment_(settings.seed) {
    if (settings.environments > 1) many_.emplace(id_, settings.environments, settings.seed);
  }

  /// Plays one episode, of `max_steps` steps at most: asks `agent` for each action and reports each
  /// reward to it. With several environments as VectorPlay does it. Returns the number of steps.
  std::int64_t run_episode(const sinew::RRef<Agent>& agent, std::int64_t max_steps);

 private:
  const std::int64_t id_;
  CartPole environment_;
  /// In its place, when there are several.
  std::optional<VectorPlay> many_;
};

}  // namespace rl

// What travels between agent and observers, and under which names.
SINEW_STRUCT(rl::ObserverSettings, id, seed, environments);
SINEW_SERVICE(rl::Observer, (rl::ObserverSettings), run_episode);
