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

std::string sizes_of(const std::vector<at::Tensor>& tensors) {
  std::ostringstream text;
  for (const at::Tensor& tensor : tensors)
    text << (&tensor == tensors.data() ? "" : ", ") << tensor.sizes();
  return text.str();
}

bool fit(const std::vector<at::Tensor>& own, const std::vector<at::Tensor>& others) {
  if (own.size() != others.size()) return false;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const bool same = others[i].defined() && others[i].sizes() == own[i].sizes() &&
                      others[i].scalar_type() == own[i].scalar_type();
    if (!same) return false;
  }
  return true;
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

std::vector<at::Tensor> copy_parameters(const Policy& policy) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& parameter : policy.parameters()) {
    copies.push_back(parameter.detach().clone());
  }
  return copies;
}

void set_parameters(Policy& policy, const std::vector<at::Tensor>& parameters) {
  const std::vector<at::Tensor> own = policy.parameters();
  if (!fit(own, parameters)) {
    throw std::invalid_argument("the policy has parameters of the sizes " + sizes_of(own) +
                                ", and these are " + sizes_of(parameters));
  }
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < own.size(); ++i) own[i].copy_(parameters[i]);
}

at::Generator make_random(std::uint64_t seed) { return at::detail::createCPUGenerator(seed); }

}  // namespace actor_learner
