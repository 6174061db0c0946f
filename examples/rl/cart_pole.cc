#include "cart_pole.h"

#include <cmath>

namespace rl {
namespace {

constexpr double kGravity = 9.8;
constexpr double kCartMass = 1.0;
constexpr double kPoleMass = 0.1;
constexpr double kTotalMass = kCartMass + kPoleMass;
constexpr double kHalfPoleLength = 0.5;
constexpr double kForce = 10.0;

// In [-0.05, 0.05). By hand, since std::uniform_real_distribution gives other numbers with each
// standard library.
double draw_start(std::mt19937_64& random) {
  const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
  return 0.1 * unit - 0.05;
}

}  // namespace

const State& CartPole::reset() {
  State state;
  for (double& number : state) number = draw_start(random_);
  return reset(state);
}

const State& CartPole::reset(const State& state) {
  state_ = state;
  steps_ = 0;
  done_ = false;
  return state_;
}

CartPole::StepResult CartPole::step(Push push) {
  if (done_) return {state_, 0.0, true};
  const auto [position, velocity, angle, spin] = state_;
  const double force = push == Push::kRight ? kForce : -kForce;
  const double cosine = std::cos(angle);
  const double sine = std::sin(angle);

  const double drive = (force + kPoleMass * kHalfPoleLength * spin * spin * sine) / kTotalMass;
  const double inertia = kHalfPoleLength * (4.0 / 3.0 - kPoleMass * cosine * cosine / kTotalMass);
  const double angular_acceleration = (kGravity * sine - cosine * drive) / inertia;
  const double acceleration =
      drive - kPoleMass * kHalfPoleLength * angular_acceleration * cosine / kTotalMass;

  state_ = {position + kStepSeconds * velocity, velocity + kStepSeconds * acceleration,
            angle + kStepSeconds * spin, spin + kStepSeconds * angular_acceleration};
  ++steps_;
  done_ =
      std::abs(state_[0]) > kMaxPosition || std::abs(state_[2]) > kMaxAngle || steps_ >= kMaxSteps;
  return {state_, 1.0, done_};
}

}  // namespace rl
