#include "sinew/examples/rl/cart_pole.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace rl {
namespace {

// The expected numbers come from Lagrange's equations of a cart with a uniform pole, a linear
// system for the two accelerations that was solved with 50 digits for each step; not from the
// formulas of CartPole.
struct Trajectory {
  const char* name;
  State start;
  std::vector<int> pushes;
  int steps;
  bool done;
  State end;
};

std::vector<int> repeat(const std::vector<int>& pattern, int times) {
  std::vector<int> pushes;
  for (int i = 0; i < times; ++i) pushes.insert(pushes.end(), pattern.begin(), pattern.end());
  return pushes;
}

class CartPoleTrajectory : public testing::TestWithParam<Trajectory> {};

TEST_P(CartPoleTrajectory, IsAsTheEquationsOfMotionSay) {
  const Trajectory& expected = GetParam();
  CartPole environment(0);
  environment.reset(expected.start);
  CartPole::StepResult result;
  int steps = 0;
  for (const int push : expected.pushes) {
    result = environment.step(static_cast<Push>(push));
    EXPECT_EQ(result.reward, 1.0);
    ++steps;
    if (result.done) break;
  }
  EXPECT_EQ(steps, expected.steps);
  EXPECT_EQ(result.done, expected.done);
  for (std::size_t i = 0; i < result.state.size(); ++i) {
    EXPECT_NEAR(result.state[i], expected.end[i], 1e-12) << "number " << i << " of the state";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CartPoleTrajectory,
    testing::Values(Trajectory{"OneRightFromRest",
                               {0, 0, 0, 0},
                               {1},
                               1,
                               false,
                               {0.0, 0.1951219512195122, 0.0, -0.2926829268292683}},
                    Trajectory{"OneLeft",
                               {0.01, -0.02, 0.03, -0.04},
                               {0},
                               1,
                               false,
                               {0.0096, -0.2155390171027894, 0.0292, 0.2619952237760392}},
                    Trajectory{"TwentyInTurn",
                               {0.01, -0.02, 0.03, -0.04},
                               repeat({0, 1}, 10),
                               20,
                               false,
                               {-0.03957518147707682, -0.03797569109418714, 0.12910626835660835,
                                0.35938257125596745}},
                    Trajectory{"RightUntilThePoleFalls",
                               {0, 0, 0, 0},
                               repeat({1}, 50),
                               9,
                               true,
                               {0.14065097203306187, 1.76038112576831, -0.21518604988500964,
                                -2.7778864940128134}},
                    Trajectory{"LeftUntilThePoleFalls",
                               {0.02, 0.03, -0.04, 0.01},
                               repeat({0}, 50),
                               10,
                               true,
                               {-0.14938652474902064, -1.9222368519504844, 0.2213773894538997,
                                3.0149466968341474}},
                    Trajectory{"APatternUntilThePoleFalls",
                               {0.03, 0.01, -0.02, 0.04},
                               repeat({1, 1, 0, 0, 1, 0}, 5),
                               24,
                               true,
                               {0.11737775359925341, 0.040408982519796875, -0.2192398610252119,
                                -0.6453483708721324}},
                    Trajectory{"OffTheTrack",
                               {2.3, 3, 0, 0},
                               repeat({1, 0}, 10),
                               2,
                               true,
                               {2.42390243902439, 3.0, -0.005853658536585366, 0.0}}),
    [](const auto& test) { return test.param.name; });

TEST(CartPole, StartsNearRestAndReproducibly) {
  CartPole one(7);
  CartPole same(7);
  CartPole other(8);
  int differing = 0;
  for (int episode = 0; episode < 100; ++episode) {
    const State start = one.reset();
    for (const double number : start) {
      EXPECT_LE(std::abs(number), 0.05);
    }
    EXPECT_EQ(start, same.reset());
    if (start != other.reset()) ++differing;
  }
  EXPECT_EQ(differing, 100);
}

TEST(CartPole, StartsFillTheirRange) {
  CartPole environment(1);
  double sum = 0;
  double lowest = 1;
  double highest = -1;
  constexpr int kEpisodes = 2000;
  for (int episode = 0; episode < kEpisodes; ++episode) {
    for (const double number : environment.reset()) {
      sum += number;
      lowest = std::min(lowest, number);
      highest = std::max(highest, number);
    }
  }
  EXPECT_NEAR(sum / (4 * kEpisodes), 0, 0.002);  // six standard errors
  EXPECT_LT(lowest, -0.0499);
  EXPECT_GT(highest, 0.0499);
}

// Keeps the pole up for ever: pushes towards the side to which it falls.
Push balance(const State& state) {
  return state[2] + 0.2 * state[3] + 0.02 * state[0] + 0.1 * state[1] > 0 ? Push::kRight
                                                                          : Push::kLeft;
}

TEST(CartPole, AnEpisodeEndsAfterFiveHundredSteps) {
  CartPole environment(3);
  State state = environment.reset();
  int steps = 0;
  bool done = false;
  while (!done && steps < 1000) {
    const auto result = environment.step(balance(state));
    state = result.state;
    done = result.done;
    ++steps;
  }
  EXPECT_EQ(steps, 500);
  EXPECT_LT(std::abs(state[2]), CartPole::kMaxAngle);
}

TEST(CartPole, StaysAsItIsAfterTheEnd) {
  CartPole environment(0);
  environment.reset(State{2.5, 1, 0, 0});
  const auto end = environment.step(Push::kLeft);
  ASSERT_TRUE(end.done);
  const auto after = environment.step(Push::kLeft);
  EXPECT_TRUE(after.done);
  EXPECT_EQ(after.reward, 0.0);
  EXPECT_EQ(after.state, end.state);
  environment.reset();
  EXPECT_FALSE(environment.step(Push::kLeft).done);
}

}  // namespace
}  // namespace rl
