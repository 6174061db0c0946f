#include "sinew/benchmarks/rollout/returns.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace sinew::bench::rollout {

std::vector<double> discounted_returns(const std::vector<double>& rewards, double gamma) {
  std::vector<double> returns(rewards.size());
  double later = 0;
  for (std::size_t i = rewards.size(); i-- > 0;) {
    later = rewards[i] + gamma * later;
    returns[i] = later;
  }
  return returns;
}

std::vector<double> normalized(std::vector<double> values) {
  if (values.size() < 2) return std::vector<double>(values.size(), 0.0);
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / (count - 1));
  // Equal values must not divide by zero.
  const double scale = 1 / (deviation + std::numeric_limits<float>::epsilon());
  for (double& value : values) value = (value - mean) * scale;
  return values;
}

}  // namespace sinew::bench::rollout
