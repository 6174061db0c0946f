#pragma once

#include <array>
#include <cstdint>
#include <random>

namespace rl {

/// Position (m), velocity (m/s), angle (rad, 0 is upright) and angular velocity (rad/s) of cart and
/// pole.
using State = std::array<double, 4>;

/// The two things that one can do to the cart.
enum class Push : std::int64_t { kLeft = 0, kRight = 1 };

/// How far the seeds of a run's environments are apart: each sees other starts.
inline constexpr std::uint64_t kSeedStep = 1'000'003;

/// A pole on a cart that is pushed left or right: the task "CartPole-v1" of the reinforcement
/// learning literature (Barto, Sutton and Anderson, 1983), with its usual constants. Every step
/// earns a reward of 1. An episode ends when the pole leans more than 12 degrees, the cart is more
/// than 2.4 m away, or 500 steps are done. Not thread-safe.
class CartPole {
 public:
  static constexpr int kMaxSteps = 500;
  static constexpr double kMaxPosition = 2.4;
  static constexpr double kMaxAngle = 12 * 2 * 3.14159265358979323846 / 360;
  static constexpr double kStepSeconds = 0.02;

  struct StepResult {
    State state;
    double reward = 0;
    bool done = false;
  };

  explicit CartPole(std::uint64_t seed) : random_(seed) {}

  /// Begins an episode: each number of the state is drawn between -0.05 and 0.05.
  const State& reset();
  /// Begins an episode in a given state.
  const State& reset(const State& state);
  /// Moves on by 20 ms (explicit Euler). After an episode's end the reward is 0 and the state
  /// stays.
  StepResult step(Push push);

 private:
  std::mt19937_64 random_;
  State state_{};
  int steps_ = 0;
  bool done_ = false;
};

}  // namespace rl
