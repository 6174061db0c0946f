#include "sinew/examples/common/training_curve.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

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

}  // namespace
}  // namespace examples
