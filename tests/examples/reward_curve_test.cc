#include "sinew/examples/rl/reward_curve.h"

#include <algorithm>
#include <locale>
#include <regex>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rl {
namespace {

using testing::HasSubstr;
using testing::Not;

RewardCurve curve_of(std::size_t episodes) {
  RewardCurve curve{"CartPole-v1 <seed & co>", 475, {}};
  for (std::size_t i = 0; i < episodes; ++i) {
    const double reward = static_cast<double>(i * 37 % 500);
    curve.episodes.push_back({reward, 0.1 * static_cast<double>(i)});
  }
  return curve;
}

struct Point {
  double x, y;
};

std::vector<std::vector<Point>> polylines(const std::string& svg) {
  std::vector<std::vector<Point>> lines;
  const std::regex points("points=\"([^\"]*)\"");
  const std::regex point("(-?[0-9.]+),(-?[0-9.]+)");
  for (std::sregex_iterator line(svg.begin(), svg.end(), points), end; line != end; ++line) {
    const std::string text = (*line)[1];
    lines.emplace_back();
    for (std::sregex_iterator p(text.begin(), text.end(), point); p != end; ++p) {
      lines.back().push_back({std::stod((*p)[1]), std::stod((*p)[2])});
    }
  }
  return lines;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(RewardCurveCsv, HasALineForEachEpisode) {
  RewardCurve curve;
  curve.episodes = {{9, 0.45}, {21, 1.4775}, {1.0 / 3, 0.1}};
  EXPECT_EQ(to_csv(curve),
            "episode,last_reward,average_reward\n"
            "1,9,0.45\n"
            "2,21,1.4775\n"
            "3,0.3333333333333333,0.1\n");
}

TEST(RewardCurveCsv, IsOnlyAHeaderWithoutEpisodes) {
  EXPECT_EQ(to_csv(RewardCurve()), "episode,last_reward,average_reward\n");
}

struct DecimalComma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(RewardCurveCsv, DoesNotDependOnTheLocale) {
  const std::locale before = std::locale::global(std::locale(std::locale(), new DecimalComma));
  RewardCurve curve;
  curve.episodes = {{12345.5, 0.25}};
  const std::string csv = to_csv(curve);
  std::locale::global(before);
  EXPECT_THAT(csv, HasSubstr("1,12345.5,0.25\n"));
}

TEST(RewardCurveSvg, DrawsBothLinesWithAllEpisodesInsideThePicture) {
  const auto lines = polylines(to_svg(curve_of(300)));
  ASSERT_EQ(lines.size(), 2U);
  for (const auto& line : lines) {
    ASSERT_EQ(line.size(), 300U);
    for (std::size_t i = 0; i < line.size(); ++i) {
      EXPECT_GE(line[i].x, 0);
      EXPECT_LE(line[i].x, 860);
      EXPECT_GE(line[i].y, 0);
      EXPECT_LE(line[i].y, 480);
      if (i > 0) {
        EXPECT_GT(line[i].x, line[i - 1].x);
      }
    }
  }
}

TEST(RewardCurveSvg, PutsHigherRewardsHigher) {
  RewardCurve curve{"", 475, {{100, 50}, {400, 200}}};
  const auto lines = polylines(to_svg(curve));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_LT(lines[0][1].y, lines[0][0].y);
  // The same scale for both: 100 of reward are as far apart in each.
  const double per_reward = (lines[0][0].y - lines[0][1].y) / 300;
  EXPECT_NEAR((lines[1][0].y - lines[1][1].y) / 150, per_reward, 1e-3);
}

TEST(RewardCurveSvg, NamesItsAxesAndLines) {
  const std::string svg = to_svg(curve_of(50));
  EXPECT_THAT(svg, HasSubstr(">Episode</text>"));
  EXPECT_THAT(svg, HasSubstr(">Reward</text>"));
  EXPECT_THAT(svg, HasSubstr(">running average</text>"));
  EXPECT_THAT(svg, HasSubstr(">goal 475</text>"));
  EXPECT_THAT(svg, HasSubstr(">500</text>"));
}

TEST(RewardCurveSvg, EscapesTheTitle) {
  const std::string svg = to_svg(curve_of(3));
  EXPECT_THAT(svg, HasSubstr("CartPole-v1 &lt;seed &amp; co&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("<seed")));
}

TEST(RewardCurveSvg, IsWellFormedForAnyNumberOfEpisodes) {
  for (const std::size_t episodes : {0U, 1U, 2U, 9U, 10U, 5000U}) {
    const std::string svg = to_svg(curve_of(episodes));
    EXPECT_EQ(svg.rfind("<svg ", 0), 0U);
    EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
    EXPECT_EQ(count(svg, "</svg>"), 1U);
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
    // A legible number of labels along the axes, however long the training was.
    EXPECT_LE(count(svg, "<text"), 30U) << episodes << " episodes";
  }
}

}  // namespace
}  // namespace rl
