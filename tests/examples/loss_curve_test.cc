#include "sinew/examples/ps_rnn/loss_curve.h"

#include <cmath>
#include <limits>
#include <regex>
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

TEST(LossCurve, PictureHasEveryPointWithinItsFrame) {
  LossCurve curve = some_curve();
  // An untrained model.
  curve.points.insert(curve.points.begin(), {0, 9.2, 9.1});
  const std::string svg = to_svg(curve);
  std::vector<std::size_t> sizes;
  const std::regex points("points=\"([^\"]*)\"");
  const std::regex point("([0-9.]+),([0-9.]+) ");
  for (std::sregex_iterator line(svg.begin(), svg.end(), points), end; line != end; ++line) {
    const std::string text = (*line)[1];
    sizes.push_back(0);
    for (std::sregex_iterator p(text.begin(), text.end(), point); p != end; ++p) {
      ++sizes.back();
      EXPECT_GE(std::stod((*p)[2]), 56) << "above the frame";
      EXPECT_LE(std::stod((*p)[2]), 420) << "below the frame";
    }
  }
  EXPECT_THAT(sizes, testing::ElementsAre(4, 2)) << svg;
}

TEST(LossCurve, PictureHasTheOnlyEpoch) {
  const std::string svg = to_svg({"", 0, {{0.5, 4.5, 0}, {1, 4, 3.75}}});
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"836\""));
}

TEST(LossCurve, PictureOfATrainingThatDiverged) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::string svg = to_svg({"", 100, {{0.5, 4.5, 0}, {1, 800, kInfinity}}});
  EXPECT_THAT(svg, testing::AllOf(HasSubstr(">validation</text>"), HasSubstr(">100<")));
  EXPECT_THAT(svg, testing::Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace ps_rnn
