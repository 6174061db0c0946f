#include "sinew/examples/ps_rnn/loss_curve.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ps_rnn {
namespace {

using testing::HasSubstr;

LossCurve some_curve() { return {"a <text>", 100, {{0.5, 4.5, 0}, {1, 4, 3.75}, {1.5, 3.5, 0}}}; }

TEST(LossCurve, IsReadAsItWasWritten) {
  const std::string csv = to_csv(some_curve());
  EXPECT_EQ(csv,
            "epoch,train_loss,valid_loss,valid_perplexity\n"
            "0.5,4.5,,\n"
            "1,4,3.75,42.52108200006278\n"
            "1.5,3.5,,\n");
  LossCurve again = some_curve();
  again.points = points_from_csv(csv, 10);
  EXPECT_EQ(to_csv(again), csv);
}

TEST(LossCurve, ForgetsWhatCameAfterTheCheckpoint) {
  EXPECT_EQ(points_from_csv(to_csv(some_curve()), 1).size(), 2U);
}

TEST(LossCurve, NamesALineThatIsNone) {
  EXPECT_THROW(points_from_csv("", 1), std::runtime_error);
  EXPECT_THROW(points_from_csv("a,b\n", 1), std::runtime_error);
  try {
    points_from_csv(to_csv({}) + "1,x,,\n", 1);
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("1,x,,"));
  }
}

TEST(LossCurve, PictureHasBothLinesAndTheUnigramModel) {
  const std::string svg = to_svg(some_curve());
  EXPECT_THAT(svg, HasSubstr("a &lt;text&gt;"));
  EXPECT_THAT(svg, HasSubstr(">training</text>"));
  EXPECT_THAT(svg, HasSubstr(">validation</text>"));
  EXPECT_THAT(svg, HasSubstr(">unigram model 100.0</text>"));
  EXPECT_THAT(to_svg({}), testing::Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace ps_rnn
