#include "sinew/examples/actor_learner/shared/pendulum.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace actor_learner {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

constexpr double kPi = 3.14159265358979323846;

// The numbers come from the published equations, computed apart from this program:
//   velocity' = velocity + (15 sin(angle) + 3 torque) 0.05, at most 8 in size
//   angle' = angle + 0.05 velocity'
//   reward = -(angle^2 + 0.1 velocity^2 + 0.001 torque^2), with the angle between -pi and pi
struct Case {
  const char* name;
  double angle, velocity, torque;
  double next_angle, next_velocity, reward;
};

class PendulumStep : public testing::TestWithParam<Case> {};

TEST_P(PendulumStep, FollowsTheEquations) {
  Pendulum pendulum(1);
  pendulum.reset(GetParam().angle, GetParam().velocity);
  const Pendulum::StepResult result = pendulum.step(GetParam().torque);
  EXPECT_NEAR(pendulum.angle(), GetParam().next_angle, 1e-9);
  EXPECT_NEAR(pendulum.velocity(), GetParam().next_velocity, 1e-9);
  EXPECT_NEAR(result.reward, GetParam().reward, 1e-9);
  EXPECT_THAT(result.observation,
              ElementsAre(FloatNear(static_cast<float>(std::cos(GetParam().next_angle)), 1e-6F),
                          FloatNear(static_cast<float>(std::sin(GetParam().next_angle)), 1e-6F),
                          FloatNear(static_cast<float>(GetParam().next_velocity), 1e-6F)));
}

INSTANTIATE_TEST_SUITE_P(
    All, PendulumStep,
    testing::Values(
        Case{"AtRestBelow", 3.141592653589793, 0.0, 1.0, 3.149092653589793, 0.1500000000000001,
             -9.870604401089357},
        Case{"Leaning", 0.5, -0.3, -1.5, 0.4917284576976576, -0.16543084604684774, -0.26125},
        Case{"BeyondTheMotor", -1.0, 2.0, 5.0, -0.9165551619302961, 1.6688967613940777, -1.404},
        Case{"AsFastAsItGets", 1.5, 7.9, 2.0, 1.9, 8.0, -8.495},
        Case{"TurnedOver", 7.5, -6.0, 0.25, 7.237049999129053, -5.259000017418946,
             -5.080700496663638},
        Case{"TurnedBackwards", -9.9, 0.75, -2.0, -9.860342403983426, 0.793151920331491,
             -7.169782253118109}),
    [](const testing::TestParamInfo<Case>& one) { return std::string(one.param.name); });

TEST(Pendulum, StandsStillUpright) {
  Pendulum pendulum(1);
  pendulum.reset(0, 0);
  for (int i = 0; i < Pendulum::kSteps; ++i) EXPECT_EQ(pendulum.step(0).reward, 0);
  EXPECT_EQ(pendulum.angle(), 0);
}

TEST(Pendulum, AnEpisodeHas200Steps) {
  Pendulum pendulum(1);
  pendulum.reset();
  for (int i = 1; i < Pendulum::kSteps; ++i) EXPECT_FALSE(pendulum.step(1).truncated) << i;
  EXPECT_TRUE(pendulum.step(1).truncated);
  pendulum.reset();
  EXPECT_FALSE(pendulum.step(1).truncated);
}

TEST(Pendulum, BeginsAnywhereAndSlowly) {
  Pendulum pendulum(3);
  double least = 0;
  double most = 0;
  for (int i = 0; i < 1000; ++i) {
    pendulum.reset();
    EXPECT_LE(std::abs(pendulum.angle()), kPi);
    EXPECT_LE(std::abs(pendulum.velocity()), 1);
    least = std::min(least, pendulum.angle());
    most = std::max(most, pendulum.angle());
  }
  EXPECT_LT(least, -3);
  EXPECT_GT(most, 3);
}

TEST(Pendulum, TheSeedDecidesAboutTheStarts) {
  Pendulum one(7);
  Pendulum same(7);
  Pendulum other(8);
  EXPECT_EQ(one.reset(), same.reset());
  EXPECT_NE(one.reset(), other.reset());
}

}  // namespace
}  // namespace actor_learner
