#pragma once

#include <array>
#include <cstdint>
#include <random>

namespace actor_learner {

/// A pendulum that a motor at its joint is to swing up and hold upright: the task "Pendulum-v1" of
/// the reinforcement learning literature, with its usual constants. The motor is too weak to lift
/// it at once. The reward of a step is
///
///   -(angle^2 + 0.1 velocity^2 + 0.001 torque^2)
///
/// with the angle and velocity before the step, so that 0 is the best and about -16.3 the worst. An
/// episode has 200 steps; no state ends it earlier. Not thread-safe.
class Pendulum {
 public:
  static constexpr int kSteps = 200;
  static constexpr double kStepSeconds = 0.05;
  /// rad/s
  static constexpr double kMaxVelocity = 8;
  /// N m
  static constexpr double kMaxTorque = 2;
  /// The least return of an episode: each step at its worst.
  static constexpr double kLeastReturn = -kSteps * 16.2736044;

  /// Cosine and sine of the angle (0 is upright), and the angular velocity (rad/s).
  using Observation = std::array<float, 3>;

  struct StepResult {
    Observation observation;
    double reward = 0;
    /// Its time is over. That is no end of the task: what would follow still counts.
    bool truncated = false;
  };

  explicit Pendulum(std::uint64_t seed) : random_(seed) {}

  /// Begins an episode: any angle, and a velocity between -1 and 1 rad/s.
  Observation reset();
  /// Begins an episode in a given state.
  Observation reset(double angle, double velocity);
  /// Moves on by 50 ms (semi-implicit Euler). `torque` (N m) is cut to what the motor has.
  StepResult step(double torque);

  /// rad; grows without end as it turns.
  double angle() const { return angle_; }
  /// rad/s
  double velocity() const { return velocity_; }

 private:
  Observation observe() const;

  std::mt19937_64 random_;
  double angle_ = 0;
  double velocity_ = 0;
  int steps_ = 0;
};

}  // namespace actor_learner
