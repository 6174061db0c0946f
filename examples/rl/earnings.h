#pragma once

#include <cstdint>
#include <vector>

#include "sinew/rpc/rpc.h"

namespace rl {

/// What the steps of one observer have earned in an episode, in the order in which their actions
/// were asked for.
struct Earnings {
  /// Which of the observer's environments has stepped; from 0.
  std::vector<std::int32_t> environments;
  /// One for each of them.
  std::vector<double> rewards;

  void add(std::int32_t environment, double reward);
};

/// For each step, the sum of its reward and all later ones of the same environment. Those that come
/// k steps later are weighted with gamma^k.
std::vector<float> discounted_returns(const Earnings& earnings, double gamma);
/// Sum of the rewards of the environment that got least. Of no steps: 0.
double least_total(const Earnings& earnings);

}  // namespace rl

SINEW_STRUCT(rl::Earnings, environments, rewards);
