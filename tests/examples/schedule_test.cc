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
