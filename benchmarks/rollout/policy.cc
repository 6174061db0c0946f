#include "sinew/benchmarks/rollout/policy.h"

#include <cmath>
#include <limits>
#include <random>

#include "torch/torch.h"

namespace sinew::bench::rollout {

using ::rl::Push;
using ::rl::State;

namespace {

constexpr std::int64_t kInputs = std::tuple_size_v<State>;
constexpr std::int64_t kHidden = 128;
constexpr std::int64_t kActions = 2;
constexpr double kDropout = 0.6;

at::Tensor to_tensor(const std::vector<State>& states) {
  at::Tensor tensor = torch::empty({static_cast<std::int64_t>(states.size()), kInputs});
  float* to = tensor.data_ptr<float>();
  for (const State& state : states) {
    for (const double number : state) *to++ = static_cast<float>(number);
  }
  return tensor;
}

}  // namespace

struct Policy::Network {
  explicit Network(std::uint64_t seed)
      : hidden(kInputs, kHidden),
        scores(kHidden, kActions),
        optimizer(parameters(), torch::optim::AdamOptions(kLearningRate)),
        random(seed) {}

  std::vector<at::Tensor> parameters() const {
    return {hidden->weight, hidden->bias, scores->weight, scores->bias};
  }

  // torch::dropout does the same with four operations more, and as much time as the rest of the
  // layer.
  at::Tensor dropout_mask(std::int64_t rows) {
    constexpr float kScale = static_cast<float>(1 / (1 - kDropout));
    constexpr auto kThreshold =
        static_cast<std::uint32_t>((1 - kDropout) * std::numeric_limits<std::uint32_t>::max());
    at::Tensor mask = torch::empty({rows, kHidden});
    float* to = mask.data_ptr<float>();
    static_assert(kHidden % 2 == 0);
    for (std::int64_t i = 0; i < rows * kHidden; i += 2) {
      const std::uint64_t bits = random();
      *to++ = static_cast<std::uint32_t>(bits) < kThreshold ? kScale : 0.0F;
      *to++ = static_cast<std::uint32_t>(bits >> 32) < kThreshold ? kScale : 0.0F;
    }
    return mask;
  }

  at::Tensor forward(const at::Tensor& inputs, const at::Tensor& masks) {
    return scores->forward(torch::relu(hidden->forward(inputs) * masks));
  }

  double draw_unit() { return static_cast<double>(random() >> 11) * 0x1p-53; }

  torch::nn::Linear hidden;
  torch::nn::Linear scores;
  torch::optim::Adam optimizer;
  std::mt19937_64 random;
};

Policy::Policy(std::uint64_t seed) {
  torch::manual_seed(
      seed);  // for the layers, which draw their parameters from torch's own generator
  network_ = std::make_unique<Network>(seed);
}
Policy::~Policy() = default;

// No graph is kept: learn() repeats the forward passes of an episode in one, with gradients. These
// are the same, and that takes a fraction of the time.
Decision Policy::decide(const std::vector<State>& states) {
  const torch::NoGradGuard no_grad;
  const auto rows = static_cast<std::int64_t>(states.size());
  Decision decision;
  decision.inputs = to_tensor(states);
  decision.masks = network_->dropout_mask(rows);
  const at::Tensor scores = network_->forward(decision.inputs, decision.masks);
  decision.actions.reserve(states.size());
  const float* of_actions = scores.data_ptr<float>();
  for (std::int64_t row = 0; row < rows; ++row, of_actions += kActions) {
    // softmax over two
    const double left = 1 / (1 + std::exp(of_actions[1] - of_actions[0]));
    decision.actions.push_back(network_->draw_unit() < left ? Push::kLeft : Push::kRight);
  }
  return decision;
}

void Policy::learn(const std::vector<Decision>& decisions,
                   const std::vector<Experience>& experiences) {
  if (experiences.empty()) return;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> masks;
  for (const Decision& decision : decisions) {
    inputs.push_back(decision.inputs);
    masks.push_back(decision.masks);
  }
  const auto count = static_cast<std::int64_t>(experiences.size());
  const at::Tensor rows = torch::empty({count}, torch::kInt64);
  const at::Tensor actions = torch::empty({count}, torch::kInt64);
  const at::Tensor advantages = torch::empty({count});
  for (std::int64_t i = 0; i < count; ++i) {
    const Experience& experience = experiences[static_cast<std::size_t>(i)];
    rows.data_ptr<std::int64_t>()[i] = experience.row;
    actions.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(experience.action);
    advantages.data_ptr<float>()[i] = static_cast<float>(experience.advantage);
  }
  const at::Tensor log_probabilities =
      torch::log_softmax(network_->forward(torch::cat(inputs), torch::cat(masks)), 1);
  const at::Tensor loss = -(log_probabilities.index({rows, actions}) * advantages).sum();
  network_->optimizer.zero_grad();
  loss.backward();
  network_->optimizer.step();
}

}  // namespace sinew::bench::rollout
