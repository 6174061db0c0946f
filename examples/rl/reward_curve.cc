#include "reward_curve.h"

#include <cmath>
#include <utility>

#include "sinew/examples/common/files.h"
#include "sinew/examples/common/line_chart.h"

namespace rl {

std::string to_csv(const RewardCurve& curve) {
  std::string csv = "episode,last_reward,average_reward\n";
  for (std::size_t i = 0; i < curve.episodes.size(); ++i) {
    const EpisodeResult& episode = curve.episodes[i];
    csv += std::to_string(i + 1) + "," + examples::number(episode.last_reward) + "," +
           examples::number(episode.average_reward) + "\n";
  }
  return csv;
}

std::string to_svg(const RewardCurve& curve) {
  examples::LineChart::Line last{"episode", "#9db7d5", 1, {}};
  examples::LineChart::Line average{"running average", "#1f4e8c", 2.5, {}};
  for (std::size_t i = 0; i < curve.episodes.size(); ++i) {
    const auto episode = static_cast<double>(i + 1);
    last.points.push_back({episode, curve.episodes[i].last_reward});
    average.points.push_back({episode, curve.episodes[i].average_reward});
  }
  examples::LineChart chart;
  chart.title = curve.title;
  chart.x_label = "Episode";
  chart.y_label = "Reward";
  chart.first_x = 1;
  chart.least_x_tick = 1;
  chart.marks = {
      {"goal " + examples::number(std::round(curve.goal * 100) / 100), "#2e8b57", curve.goal}};
  // The noisy one lies behind.
  chart.lines = {std::move(last), std::move(average)};
  return examples::to_svg(chart);
}

}  // namespace rl
