#pragma once

#include <array>
#include <cstdint>

#include "cart_poles.h"
#include "sinew/rref/remote.h"

namespace rl {

class Agent;

/// What an observer with many environments does: it plays them in two groups. While the agent
/// decides for one group, the other one steps.
class VectorPlay {
 public:
  /// `environments` is at least 2. The first one has the seed `seed`, and each next one the next
  /// seed (kSeedStep).
  VectorPlay(std::int64_t observer, std::int32_t environments, std::uint64_t seed);

  /// Plays one episode in each environment, of `max_steps` steps at most. Asks `agent` for all
  /// actions of a group in one call, and reports all rewards in one call at the end. Returns the
  /// number of steps of all environments.
  std::int64_t run_episode(const sinew::RRef<Agent>& agent, std::int64_t max_steps);

 private:
  const std::int64_t observer_;
  std::array<CartPoles, 2> groups_;
};

}  // namespace rl
