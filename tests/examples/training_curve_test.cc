#include "sinew/examples/common/training_curve.h"

#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace examples {
namespace {

using ::testing::HasSubstr;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

TrainingCurve some_curve() {
  TrainingCurve curve;
  curve.title = "A & B";
  curve.unit = "loss";
  curve.names = {"train", "test"};
  curve.points = {{0.5, {2.25, kUnknown}}, {1, {1.5, 1.75}}};
  return curve;
}

TEST(TrainingCurveTest, IsReadAsItWasWritten) {
  const TrainingCurve curve = some_curve();
  EXPECT_EQ(to_csv(curve), "epoch,train,test\n0.5,2.25,\n1,1.5,1.75\n");
  const auto points = points_from_csv(curve, to_csv(curve), 10);
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].at, 0.5);
  EXPECT_EQ(points[0].values[0], 2.25);
  EXPECT_TRUE(std::isnan(points[0].values[1]));
  EXPECT_EQ(points[1].values, std::vector<double>({1.5, 1.75}));
  EXPECT_EQ(points_from_csv(curve, to_csv(curve), 0.75).size(), 1U);
}

TEST(TrainingCurveTest, RefusesWhatIsNone) {
  const TrainingCurve curve = some_curve();
  const auto error = [&curve](const std::string& csv) -> std::string {
    try {
      points_from_csv(curve, csv, 10);
    } catch (const std::runtime_error& failure) {
      return failure.what();
    }
    return "no error";
  };
  EXPECT_THAT(error("epoch,loss\n"), HasSubstr("begins with epoch,train,test"));
  EXPECT_THAT(error("epoch,train,test\n1,x,2\n"), HasSubstr("1,x,2"));
  EXPECT_THAT(error("epoch,train,test\n1,2\n"), HasSubstr("not 2 figures: 1,2"));
  EXPECT_THAT(error("epoch,train,test\n1,2,3,4\n"), HasSubstr("not 2 figures"));
  EXPECT_THAT(error("epoch,train,test\n1,inf,3\n"), HasSubstr("1,inf,3"));
}

TEST(TrainingCurveTest, DrawsALineForEachNameWithoutWhatIsUnknown) {
  const std::string svg = to_svg(some_curve());
  EXPECT_THAT(svg, HasSubstr("A &amp; B"));
  EXPECT_THAT(svg, HasSubstr(">train<"));
  EXPECT_THAT(svg, HasSubstr(">test<"));
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("nan")));
}

TEST(TrainingCurveTest, MarksTheGoal) {
  TrainingCurve curve = some_curve();
  EXPECT_THAT(to_svg(curve), ::testing::Not(HasSubstr("goal")));
  curve.goal = 237.5;
  EXPECT_THAT(to_svg(curve), HasSubstr(">goal 237.5<"));
}

TEST(TrainingCurveTest, ReturnsMayLieBelowZero) {
  TrainingCurve curve = some_curve();
  curve.names = {"return"};
  curve.points = {{1, {-1480}}, {2, {-150}}};
  const std::string svg = to_svg(curve);
  for (const char* label : {">-1500<", ">-500<", ">0<"}) EXPECT_THAT(svg, HasSubstr(label));
  EXPECT_THAT(svg, ::testing::Not(HasSubstr(">500<"))) << "nothing is there";
  // The picture's plot is from 56 to 420: the greater value stands higher, and both are inside.
  const std::size_t begin = svg.find("points=\"") + 8;
  std::istringstream points(svg.substr(begin, svg.find('"', begin) - begin));
  std::vector<double> heights;
  double x = 0;
  double y = 0;
  char comma = 0;
  while (points >> x >> comma >> y) heights.push_back(y);
  ASSERT_EQ(heights.size(), 2U);
  EXPECT_LT(heights[1], heights[0]);
  EXPECT_GT(heights[1], 56);
  EXPECT_LT(heights[0], 420);
}

}  // namespace
}  // namespace examples
