#include "sinew/examples/common/line_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <locale>
#include <regex>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace examples {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::Ge;
using testing::HasSubstr;
using testing::Le;
using testing::Not;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using Point = LineChart::Point;

LineChart chart_of(std::vector<std::vector<Point>> lines,
                   LineChart::Scale scale = LineChart::Scale::kLinear) {
  LineChart chart;
  chart.title = "training <seed & co>";
  chart.x_label = "Episode";
  chart.y_label = "Reward";
  chart.y_scale = scale;
  for (std::vector<Point>& points : lines) {
    chart.lines.push_back({"line", "#1f4e8c", 2, std::move(points)});
  }
  return chart;
}

/// Where the points of each line are in the picture, also of a line that has one alone.
std::vector<std::vector<Point>> drawn_lines(const std::string& svg) {
  std::vector<std::vector<Point>> lines;
  const std::regex shape("points=\"([^\"]*)\"|<circle cx=\"([^\"]*)\" cy=\"([^\"]*)\"");
  const std::regex point("(-?[0-9.]+),(-?[0-9.]+) ");
  for (std::sregex_iterator match(svg.begin(), svg.end(), shape), end; match != end; ++match) {
    lines.emplace_back();
    if ((*match)[2].matched) {
      lines.back().push_back({std::stod((*match)[2]), std::stod((*match)[3])});
      continue;
    }
    const std::string text = (*match)[1];
    for (std::sregex_iterator p(text.begin(), text.end(), point); p != end; ++p) {
      lines.back().push_back({std::stod((*p)[1]), std::stod((*p)[2])});
    }
    // A line of one point has no length: nobody sees it.
    EXPECT_NE(lines.back().size(), 1U) << svg;
  }
  return lines;
}

auto is_inside_the_frame() {
  return AllOf(Field(&Point::x, AllOf(Ge(72), Le(836))), Field(&Point::y, AllOf(Ge(56), Le(420))));
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

class LineChartTest : public testing::TestWithParam<LineChart::Scale> {};

TEST_P(LineChartTest, ShowsEveryPoint) {
  std::vector<Point> many;
  for (int i = 0; i < 300; ++i) many.push_back({0.02 * (i + 1), 1.0 + i * 37 % 500});
  const std::vector<std::vector<Point>> all = {
      // An untrained model; one epoch; a curve that goes on from a checkpoint.
      {{0, 9897}, {0.04, 589.76}, {1, 155.31}},
      {{1, 80.45}},
      {{1000, 3}, {1001, 2.5}},
      many,
      {{-3, 7}, {2, 7}},
      {{1, 1}, {2, 1000}, {3, 1e-3}},
      {{1, 1e-30}, {2, 1e300}}};
  for (const std::vector<Point>& points : all) {
    const auto lines = drawn_lines(to_svg(chart_of({points}, GetParam())));
    ASSERT_EQ(lines.size(), 1U);
    ASSERT_EQ(lines[0].size(), points.size());
    EXPECT_THAT(lines[0], Each(is_inside_the_frame()));
    for (std::size_t i = 1; i < points.size(); ++i) {
      EXPECT_GT(lines[0][i].x, lines[0][i - 1].x);
      if (points[i].y > 1.1 * points[i - 1].y && points.size() < 10) {
        EXPECT_LT(lines[0][i].y, lines[0][i - 1].y) << "what is more lies higher";
      }
    }
  }
}

TEST_P(LineChartTest, AxisBeginsWhereTheFirstPointIs) {
  LineChart chart = chart_of({{{3, 5}, {9, 6}}, {{7, 5}}}, GetParam());
  chart.first_x = 5;
  const auto lines = drawn_lines(to_svg(chart));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0][0].x, 72);
  EXPECT_EQ(lines[0][1].x, 836);
  EXPECT_NEAR(lines[1][0].x, 72 + (836 - 72) * 4.0 / 6, 0.05);
}

TEST_P(LineChartTest, LeavesOutWhatHasNoPlace) {
  LineChart chart = chart_of(
      {{{1, 10}, {2, kInfinity}, {3, kNan}, {kNan, 3}, {4, 20}}, {{1, kInfinity}}, {}}, GetParam());
  chart.marks = {{"nowhere", "#2e8b57", -kInfinity}, {"somewhere", "#2e8b57", 12}};
  const std::string svg = to_svg(chart);
  const auto lines = drawn_lines(svg);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines, ElementsAre(testing::SizeIs(2), testing::SizeIs(0), testing::SizeIs(0)));
  EXPECT_THAT(lines[0], Each(is_inside_the_frame()));
  EXPECT_THAT(svg, AllOf(HasSubstr("somewhere"), Not(HasSubstr("nowhere"))));
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("inf")), Not(HasSubstr("nan"))));
}

TEST_P(LineChartTest, IsWellFormedAndLegibleForAnyNumberOfPoints) {
  for (const int size : {0, 1, 2, 9, 10, 5000}) {
    std::vector<Point> points;
    for (int i = 0; i < size; ++i) points.push_back({i + 1.0, 1.0 + i * 37 % 500});
    const std::string svg = to_svg(chart_of({points}, GetParam()));
    EXPECT_EQ(svg.rfind("<svg ", 0), 0U);
    EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
    EXPECT_EQ(count(svg, "</svg>"), 1U);
    EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
    EXPECT_LE(count(svg, "<text"), 30U) << size << " points";
  }
  // So are far ends.
  LineChart chart = chart_of({{{10'000, 1}, {10'010, 1e30}}}, GetParam());
  chart.first_x = 10'000;
  const std::string svg = to_svg(chart);
  EXPECT_LE(count(svg, "<text"), 30U);
  for (const char* label : {">10000<", ">10010<", ">1e+30<"}) EXPECT_THAT(svg, HasSubstr(label));
}

INSTANTIATE_TEST_SUITE_P(Scales, LineChartTest,
                         testing::Values(LineChart::Scale::kLinear, LineChart::Scale::kLogarithmic),
                         [](const auto& scale) {
                           return scale.param == LineChart::Scale::kLinear ? "Linear"
                                                                           : "Logarithmic";
                         });

TEST(LineChartScaleTest, LogarithmicAxisHasNoPlaceForZero) {
  const auto lines = drawn_lines(
      to_svg(chart_of({{{1, 0}, {2, -5}, {3, 10}, {4, 100}}}, LineChart::Scale::kLogarithmic)));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].size(), 2U);
}

TEST(LineChartScaleTest, LinesShareOneScale) {
  const auto lines = drawn_lines(to_svg(chart_of({{{1, 100}, {2, 400}}, {{1, 50}, {2, 200}}})));
  ASSERT_EQ(lines.size(), 2U);
  const double per_unit = (lines[0][0].y - lines[0][1].y) / 300;
  EXPECT_NEAR((lines[1][0].y - lines[1][1].y) / 150, per_unit, 1e-3);
}

TEST(LineChartTextTest, NamesAxesAndLinesAndEscapes) {
  LineChart chart = chart_of({{{1, 400}}, {{1, 10}}});
  chart.marks = {{"goal 475", "#2e8b57", 475}};
  const std::string svg = to_svg(chart);
  for (const char* text : {">Episode</text>", ">Reward</text>", ">line</text>", ">goal 475</text>",
                           ">500</text>", "training &lt;seed &amp; co&gt;"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(svg, Not(HasSubstr("<seed")));
}

struct DecimalComma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(LineChartTextTest, DoesNotDependOnTheLocale) {
  const LineChart chart = chart_of({{{0.5, 12'345.5}, {1234.5, 0.25}}});
  const std::string usual = to_svg(chart);
  const std::locale before = std::locale::global(std::locale(std::locale(), new DecimalComma));
  const std::string with_commas = to_svg(chart);
  std::locale::global(before);
  EXPECT_EQ(with_commas, usual);
}

}  // namespace
}  // namespace examples
