#include "shared/policy.h"

#include <cmath>
#include <sstream>
#include <stdexcept>
#include <string>

#include "ATen/ATen.h"
#include "ATen/CPUGeneratorImpl.h"

namespace actor_learner {
namespace {

// Beyond these a deviation is as good as none, or as any.
constexpr double kLeastLogDeviation = -20;
constexpr double kMostLogDeviation = 2;

bool fit(const at::Tensor& own, const at::Tensor& other) {
  return other.defined() && other.sizes() == own.sizes() &&
         other.scalar_type() == own.scalar_type();
}

}  // namespace

Policy::Policy()
    : first_(register_module("first", torch::nn::Linear(kObservationSize, kHidden))),
      second_(register_module("second", torch::nn::Linear(kHidden, kHidden))),
      mean_(register_module("mean", torch::nn::Linear(kHidden, kActionSize))),
      log_deviation_(register_module("log_deviation", torch::nn::Linear(kHidden, kActionSize))) {}

Policy::Sample Policy::sample(const at::Tensor& observations, at::Generator& random) {
  const at::Tensor hidden = second_(first_(observations).relu()).relu();
  const at::Tensor log_deviation =
      log_deviation_(hidden).clamp(kLeastLogDeviation, kMostLogDeviation);
  const at::Tensor noise = at::empty_like(log_deviation).normal_(0, 1, random);
  const at::Tensor before = mean_(hidden) + log_deviation.exp() * noise;
  const at::Tensor gaussian =
      -0.5 * noise * noise - log_deviation - 0.5 * std::log(2 * 3.14159265358979323846);
  // log(1 - tanh(x)^2), in a form that does not lose all digits for large x.
  const at::Tensor squashed = 2 * (std::log(2.0) - before - at::softplus(-2 * before));
  return {before.tanh(), (gaussian - squashed).sum(1)};
}

at::Tensor Policy::mean_actions(const at::Tensor& observations) {
  return mean_(second_(first_(observations).relu()).relu()).tanh();
}

void set_parameters(Policy& policy, const sinew::optim::StateDict& parameters) {
  const auto own = policy.named_parameters();
  for (const auto& parameter : own) {
    const auto found = parameters.find(parameter.key());
    if (found != parameters.end() && fit(parameter.value(), found->second)) continue;
    std::ostringstream text;
    text << "the policy's '" << parameter.key() << "' has the sizes " << parameter.value().sizes();
    if (found == parameters.end() || !found->second.defined()) {
      text << ", and these weights have none";
    } else {
      text << ", and that of these weights is " << found->second.toString() << " "
           << found->second.sizes();
    }
    throw std::invalid_argument(text.str());
  }
  const at::NoGradGuard no_grad;
  for (const auto& parameter : own) parameter.value().copy_(parameters.at(parameter.key()));
}

at::Generator make_random(std::uint64_t seed) { return at::detail::createCPUGenerator(seed); }

}  // namespace actor_learner
