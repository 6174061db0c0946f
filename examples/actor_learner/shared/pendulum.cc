#include "shared/pendulum.h"

#include <algorithm>
#include <cmath>

namespace actor_learner {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kGravity = 10;
constexpr double kMass = 1;
constexpr double kLength = 1;

/// The same angle between -pi and pi.
double wrapped(double angle) { return std::remainder(angle, 2 * kPi); }

}  // namespace

Pendulum::Observation Pendulum::reset() {
  // By hand, since std::uniform_real_distribution gives other numbers with each standard library.
  const auto draw = [this](double most) {
    return most * (2 * (static_cast<double>(random_() >> 11) * 0x1p-53) - 1);
  };
  const double angle = draw(kPi);
  return reset(angle, draw(1));
}

Pendulum::Observation Pendulum::reset(double angle, double velocity) {
  angle_ = angle;
  velocity_ = velocity;
  steps_ = 0;
  return observe();
}

Pendulum::StepResult Pendulum::step(double torque) {
  const double applied = std::clamp(torque, -kMaxTorque, kMaxTorque);
  const double angle = wrapped(angle_);
  const double cost = angle * angle + 0.1 * velocity_ * velocity_ + 0.001 * applied * applied;
  // A rod of that mass and length, which turns about its end.
  const double acceleration =
      3 * kGravity / (2 * kLength) * std::sin(angle_) + 3 / (kMass * kLength * kLength) * applied;
  velocity_ = std::clamp(velocity_ + acceleration * kStepSeconds, -kMaxVelocity, kMaxVelocity);
  angle_ += velocity_ * kStepSeconds;
  return {observe(), -cost, ++steps_ >= kSteps};
}

Pendulum::Observation Pendulum::observe() const {
  return {static_cast<float>(std::cos(angle_)), static_cast<float>(std::sin(angle_)),
          static_cast<float>(velocity_)};
}

}  // namespace actor_learner
