#pragma once

#include <vector>

namespace sinew::bench::rollout {

/// For each step, the sum of its reward and all later ones, those that come k steps later weighted
/// with gamma^k.
std::vector<double> discounted_returns(const std::vector<double>& rewards, double gamma);

/// Shifts to mean 0 and scales to standard deviation 1 (unbiased). Of fewer than two values makes
/// zeros.
std::vector<double> normalized(std::vector<double> values);

}  // namespace sinew::bench::rollout
