#include "reward_curve.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string_view>

namespace rl {
namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 480;
constexpr double kLeft = 72;
constexpr double kRight = 24;
constexpr double kTop = 56;
constexpr double kBottom = 60;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = kHeight - kTop - kBottom;

constexpr std::string_view kEpisodeColor = "#9db7d5";
constexpr std::string_view kAverageColor = "#1f4e8c";
constexpr std::string_view kGoalColor = "#2e8b57";
constexpr std::string_view kGridColor = "#e6e8eb";
constexpr std::string_view kTextColor = "#30343b";

// The shortest text that reads as the same number. Not printf: it writes a comma in some locales.
std::string number(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return std::string(text, end);
}

// A coordinate; a tenth of a pixel is enough.
std::string pixel(double value) { return number(std::round(value * 10) / 10); }

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

// The distance of grid lines: 1, 2 or 5 times a power of ten, for about `count` of them.
double tick_distance(double range, int count) {
  const double rough = range / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

class Picture {
 public:
  explicit Picture(const RewardCurve& curve) : curve_(curve) {
    double highest = curve.goal;
    for (const EpisodeResult& episode : curve.episodes) {
      highest = std::max({highest, episode.last_reward, episode.average_reward});
    }
    reward_tick_ = tick_distance(std::max(highest, 1.0), 6);
    top_reward_ = reward_tick_ * std::ceil(std::max(highest, 1.0) * 1.02 / reward_tick_);
    last_episode_ = std::max<double>(static_cast<double>(curve.episodes.size()), 2);
    episode_tick_ = std::max(1.0, tick_distance(last_episode_, 8));
  }

  std::string draw() {
    begin();
    grid();
    goal();
    // Behind the average, since it is noisy.
    line(&EpisodeResult::last_reward, kEpisodeColor, 1);
    line(&EpisodeResult::average_reward, kAverageColor, 2.5);
    axes();
    legend();
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  double x(double episode) const {
    return kLeft + kPlotWidth * (episode - 1) / (last_episode_ - 1);
  }
  double y(double reward) const { return kTop + kPlotHeight * (1 - reward / top_reward_); }

  void begin() {
    svg_ += "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(kWidth) + "\" height=\"" +
            number(kHeight) + "\" viewBox=\"0 0 " + number(kWidth) + " " + number(kHeight) +
            "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\">\n";
    svg_ += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    text(kLeft, 32, curve_.title, "start", "font-size=\"17\" font-weight=\"bold\"");
  }

  void grid() {
    for (double reward = 0; reward <= top_reward_ + reward_tick_ / 2; reward += reward_tick_) {
      stroke(kLeft, y(reward), kLeft + kPlotWidth, y(reward), kGridColor, "");
      text(kLeft - 10, y(reward) + 4.5, number(reward), "end");
    }
    for (double episode = episode_tick_; episode <= last_episode_; episode += episode_tick_) {
      stroke(x(episode), kTop, x(episode), kTop + kPlotHeight, kGridColor, "");
      text(x(episode), kTop + kPlotHeight + 20, number(episode), "middle");
    }
  }

  void goal() {
    stroke(kLeft, y(curve_.goal), kLeft + kPlotWidth, y(curve_.goal), kGoalColor,
           "stroke-dasharray=\"7 5\" stroke-width=\"1.5\"");
  }

  void line(double EpisodeResult::*value, std::string_view color, double width) {
    svg_ += "<polyline fill=\"none\" stroke-linejoin=\"round\" stroke=\"" + std::string(color) +
            "\" stroke-width=\"" + number(width) + "\" points=\"";
    for (std::size_t i = 0; i < curve_.episodes.size(); ++i) {
      svg_ +=
          pixel(x(static_cast<double>(i) + 1)) + "," + pixel(y(curve_.episodes[i].*value)) + " ";
    }
    svg_ += "\"/>\n";
  }

  void axes() {
    stroke(kLeft, kTop, kLeft, kTop + kPlotHeight, kTextColor, "");
    stroke(kLeft, kTop + kPlotHeight, kLeft + kPlotWidth, kTop + kPlotHeight, kTextColor, "");
    text(kLeft + kPlotWidth / 2, kHeight - 14, "Episode", "middle");
    const std::string middle = number(kTop + kPlotHeight / 2);
    text(20, kTop + kPlotHeight / 2, "Reward", "middle",
         "transform=\"rotate(-90 20 " + middle + ")\"");
  }

  // Right of the title. The places leave room for the fonts of any viewer.
  void legend() {
    const auto entry = [&](double at, std::string_view label, std::string_view color,
                           std::string_view style) {
      stroke(at, 27.5, at + 24, 27.5, color, style);
      text(at + 31, 32, label, "start");
    };
    entry(466, "episode", kEpisodeColor, "stroke-width=\"2\"");
    entry(566, "running average", kAverageColor, "stroke-width=\"2.5\"");
    entry(722, "goal " + number(std::round(curve_.goal * 100) / 100), kGoalColor,
          "stroke-dasharray=\"7 5\" stroke-width=\"1.5\"");
  }

  void text(double at_x, double at_y, std::string_view content, std::string_view anchor,
            std::string_view more = "") {
    svg_ += "<text x=\"" + pixel(at_x) + "\" y=\"" + pixel(at_y) + "\" text-anchor=\"" +
            std::string(anchor) + "\" fill=\"" + std::string(kTextColor) + "\" " +
            std::string(more) + ">" + escaped(content) + "</text>\n";
  }

  void stroke(double x1, double y1, double x2, double y2, std::string_view color,
              std::string_view more) {
    svg_ += "<line x1=\"" + pixel(x1) + "\" y1=\"" + pixel(y1) + "\" x2=\"" + pixel(x2) +
            "\" y2=\"" + pixel(y2) + "\" stroke=\"" + std::string(color) + "\" " +
            std::string(more) + "/>\n";
  }

  const RewardCurve& curve_;
  double reward_tick_ = 1;
  double top_reward_ = 1;
  double last_episode_ = 1;
  double episode_tick_ = 1;
  std::string svg_;
};

}  // namespace

std::string to_csv(const RewardCurve& curve) {
  std::string csv = "episode,last_reward,average_reward\n";
  for (std::size_t i = 0; i < curve.episodes.size(); ++i) {
    const EpisodeResult& episode = curve.episodes[i];
    csv += std::to_string(i + 1) + "," + number(episode.last_reward) + "," +
           number(episode.average_reward) + "\n";
  }
  return csv;
}

std::string to_svg(const RewardCurve& curve) { return Picture(curve).draw(); }

void write_file(const std::filesystem::path& file, const std::string& content) {
  std::error_code error;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
  if (!error) {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out << content;
    out.close();
    if (out) return;
    error = std::error_code(errno, std::generic_category());
  }
  throw std::runtime_error("cannot write " + file.string() + ": " + error.message());
}

}  // namespace rl
