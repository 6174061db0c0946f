#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "agent.h"
#include "options.h"
#include "reward_curve.h"

namespace rl {

/// How a training went.
struct TrainingResult {
  RewardCurve curve;
  bool solved = false;
  /// Steps of all observers' environments in the episodes that count, and how many of them were
  /// made per second of playing (learning is not playing).
  std::int64_t steps = 0;
  double steps_per_second = 0;
  int observers = 0;
};

/// Average reward at which the task counts as solved. The usual mark is 475 for episodes of 500
/// steps; when observers share the steps, each can get only its part of both: 475 / observers.
double reward_goal(std::int64_t steps_per_observer);

/// `Episode 10  Last reward: 35.00  Average reward: 14.13`
std::string log_line(std::size_t episode, const EpisodeResult& result);

/// Lets the agent play and learn until it has solved the task or played all episodes. Writes a line
/// to `log` now and then. Throws what Agent::run_episode throws.
TrainingResult train(Agent& agent, const sinew::RRef<Agent>& self, const Options& options,
                     std::ostream& log);

/// One JSON object without line breaks.
std::string to_json(const TrainingResult& result, const Options& options);

}  // namespace rl
