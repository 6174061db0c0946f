#include "sinew/examples/image_classifier/schedule.h"

#include "gtest/gtest.h"

namespace image_classifier {
namespace {

TEST(ScheduleTest, GoesDownAlongHalfACosine) {
  Schedule schedule;
  schedule.peak = 0.4;
  schedule.epochs = 10;
  EXPECT_DOUBLE_EQ(schedule.rate(0), 0.4);
  EXPECT_DOUBLE_EQ(schedule.rate(5), 0.2);
  EXPECT_NEAR(schedule.rate(10), 0, 1e-12);
  // cos(pi / 3) = 1/2
  EXPECT_DOUBLE_EQ(schedule.rate(10.0 / 3), 0.3);
}

TEST(ScheduleTest, GoesDownInSteps) {
  Schedule schedule;
  schedule.peak = 0.8;
  schedule.epochs = 90;
  schedule.steps = {{30, 60}, 0.1};
  EXPECT_DOUBLE_EQ(schedule.rate(0), 0.8);
  EXPECT_DOUBLE_EQ(schedule.rate(29.99), 0.8);
  EXPECT_DOUBLE_EQ(schedule.rate(30), 0.08);
  EXPECT_NEAR(schedule.rate(89), 0.008, 1e-15);
}

TEST(ScheduleTest, ReadsSteps) {
  const auto steps = RateSteps::parse("steps:30,60.5:0.2");
  ASSERT_TRUE(steps.has_value());
  EXPECT_EQ(steps->epochs, std::vector<double>({30, 60.5}));
  EXPECT_EQ(steps->factor, 0.2);
  EXPECT_EQ(RateSteps::parse("steps:1")->factor, 0.1);
  EXPECT_TRUE(RateSteps::parse("cosine")->epochs.empty());
  for (const char* wrong :
       {"", "cos", "steps", "steps:", "steps:a", "steps:3,", "steps:3,3", "steps:0", "steps:3:1",
        "steps:3:0", "steps:3:", "steps:3:0.1:2", "steps:nan", "steps:inf", "steps: 3"}) {
    EXPECT_FALSE(RateSteps::parse(wrong).has_value()) << wrong;
  }
}

TEST(ScheduleTest, WarmsUpInALine) {
  Schedule schedule;
  schedule.peak = 1;
  schedule.epochs = 1e9;
  schedule.warmup_epochs = 4;
  schedule.warmup_factor = 0.2;
  EXPECT_NEAR(schedule.rate(0), 0.2, 1e-9);
  EXPECT_NEAR(schedule.rate(2), 0.6, 1e-9);
  EXPECT_NEAR(schedule.rate(4), 1, 1e-9);
  EXPECT_LT(schedule.rate(3.999), schedule.rate(4));
}

TEST(ScheduleTest, ScalesWithTheBatch) {
  EXPECT_DOUBLE_EQ(linearly_scaled(0.1, 256), 0.1);
  EXPECT_DOUBLE_EQ(linearly_scaled(0.1, 1024), 0.4);
  EXPECT_DOUBLE_EQ(linearly_scaled(0.1, 64), 0.025);
}

}  // namespace
}  // namespace image_classifier
