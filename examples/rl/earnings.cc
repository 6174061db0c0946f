#include "earnings.h"

#include <algorithm>

namespace rl {
namespace {

// A number for each environment, to begin with 0. An observer numbers its environments from 0 on,
// and each of them makes a step at least.
std::vector<double> one_for_each_environment(const Earnings& earnings) {
  const auto last = std::max_element(earnings.environments.begin(), earnings.environments.end());
  return std::vector<double>(
      last == earnings.environments.end() ? 1 : static_cast<std::size_t>(*last) + 1);
}

}  // namespace

void Earnings::add(std::int32_t environment, double reward) {
  environments.push_back(environment);
  rewards.push_back(reward);
}

std::vector<float> discounted_returns(const Earnings& earnings, double gamma) {
  std::vector<double> later = one_for_each_environment(earnings);
  std::vector<float> returns(earnings.rewards.size());
  for (std::size_t i = returns.size(); i-- > 0;) {
    double& sum = later[static_cast<std::size_t>(earnings.environments[i])];
    sum = earnings.rewards[i] + gamma * sum;
    returns[i] = static_cast<float>(sum);
  }
  return returns;
}

double least_total(const Earnings& earnings) {
  std::vector<double> totals = one_for_each_environment(earnings);
  for (std::size_t i = 0; i < earnings.rewards.size(); ++i) {
    totals[static_cast<std::size_t>(earnings.environments[i])] += earnings.rewards[i];
  }
  return *std::min_element(totals.begin(), totals.end());
}

}  // namespace rl
