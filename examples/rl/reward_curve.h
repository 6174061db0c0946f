#pragma once

#include <string>
#include <vector>

namespace rl {

struct EpisodeResult {
  /// Sum of the rewards of the observer that got least.
  double last_reward = 0;
  /// Running average of the above: 0.05 parts of it, 0.95 of what there was.
  double average_reward = 0;
};

/// The rewards of all episodes of a training, the first one first.
struct RewardCurve {
  /// Stands above the picture.
  std::string title;
  /// Average reward at which the task counts as solved; drawn as a line.
  double goal = 0;
  std::vector<EpisodeResult> episodes;
};

/// `episode,last_reward,average_reward` and a line for each episode. Numbers are written such that
/// reading them gives the same double. Independent of the locale.
std::string to_csv(const RewardCurve& curve);

/// A picture of the curve: each episode's reward, the running average, the goal, axes with labels,
/// and a legend.
std::string to_svg(const RewardCurve& curve);

}  // namespace rl
