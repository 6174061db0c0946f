#include "sinew/examples/common/progress_bar.h"

#include "gtest/gtest.h"

namespace examples {
namespace {

TEST(ProgressBar, FillsUp) {
  EXPECT_EQ(ProgressBar::draw(0, 4, "a"), "[....] a");
  EXPECT_EQ(ProgressBar::draw(0.5, 4, "a"), "[##..] a");
  EXPECT_EQ(ProgressBar::draw(0.99, 4, "a"), "[###.] a");
  EXPECT_EQ(ProgressBar::draw(1, 4, "a"), "[####] a");
}

TEST(ProgressBar, StaysWithinItsBrackets) {
  EXPECT_EQ(ProgressBar::draw(-1, 4, ""), "[....] ");
  EXPECT_EQ(ProgressBar::draw(7, 4, ""), "[####] ");
}

TEST(ProgressBar, WritesNothingUnlessOnATerminal) {
  testing::internal::CaptureStderr();
  {
    ProgressBar bar;
    bar.show(0.5, "half");
    bar.clear();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace examples
