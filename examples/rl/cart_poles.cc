#include "cart_poles.h"

#include <stdexcept>

#include "ATen/Functions.h"

namespace rl {

CartPoles::CartPoles(std::int32_t first, std::int32_t count, std::uint64_t seed) : first_(first) {
  for (std::int32_t i = first; i < first + count; ++i) {
    environments_.emplace_back(seed + static_cast<std::uint64_t>(i) * kSeedStep);
  }
}

void CartPoles::reset(std::int64_t max_steps) {
  steps_left_ = max_steps;
  playing_.clear();
  states_.clear();
  for (CartPole& environment : environments_) {
    playing_.push_back(static_cast<std::int32_t>(playing_.size()));
    states_.push_back(environment.reset());
  }
}

at::Tensor CartPoles::states() const {
  at::Tensor rows = at::empty({static_cast<std::int64_t>(states_.size()), 4}, at::kFloat);
  float* to = rows.data_ptr<float>();
  for (const State& state : states_) {
    for (const double number : state) *to++ = static_cast<float>(number);
  }
  return rows;
}

Earnings CartPoles::step(const at::Tensor& actions) {
  const auto count = static_cast<std::int64_t>(playing_.size());
  if (actions.scalar_type() != at::kLong || actions.dim() != 1 || actions.size(0) != count) {
    throw std::invalid_argument("an action for each environment that plays is wanted");
  }
  const at::Tensor pushes = actions.contiguous();
  --steps_left_;
  Earnings earned;
  std::size_t left = 0;
  for (std::size_t i = 0; i < playing_.size(); ++i) {
    const std::int32_t place = playing_[i];
    const CartPole::StepResult result = environments_[static_cast<std::size_t>(place)].step(
        static_cast<Push>(pushes.data_ptr<std::int64_t>()[i]));
    earned.add(first_ + place, result.reward);
    if (result.done || steps_left_ == 0) continue;
    playing_[left] = place;
    states_[left++] = result.state;
  }
  playing_.resize(left);
  states_.resize(left);
  return earned;
}

}  // namespace rl
