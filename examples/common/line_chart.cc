#include "sinew/examples/common/line_chart.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "sinew/examples/common/files.h"

namespace examples {
namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 480;
constexpr double kLeft = 72;
constexpr double kRight = 24;
constexpr double kTop = 56;
constexpr double kBottom = 60;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = kHeight - kTop - kBottom;
// Of an entry of the legend; a letter is as wide as in the widest of the usual fonts.
constexpr double kSampleWidth = 31;
constexpr double kLetterWidth = 7.6;
constexpr double kEntryGap = 14;

constexpr std::string_view kGridColor = "#e6e8eb";
constexpr std::string_view kTextColor = "#30343b";
constexpr std::string_view kDashes = "stroke-dasharray=\"7 5\" stroke-width=\"1.5\"";

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
  explicit Picture(LineChart chart) : chart_(std::move(chart)) {
    leave_out_what_has_no_place();
    std::vector<double> heights;
    for (const LineChart::Mark& mark : chart_.marks) heights.push_back(mark.y);
    first_x_ = chart_.first_x;
    for (const LineChart::Line& line : chart_.lines) {
      for (const LineChart::Point& point : line.points) first_x_ = std::min(first_x_, point.x);
    }
    last_x_ = first_x_ + chart_.least_length;
    for (const LineChart::Line& line : chart_.lines) {
      for (const LineChart::Point& point : line.points) {
        heights.push_back(point.y);
        last_x_ = std::max(last_x_, point.x);
      }
    }
    if (chart_.y_scale == LineChart::Scale::kLogarithmic) {
      divide_logarithmic(heights);
    } else {
      divide_linear(heights);
    }
    x_tick_ = std::max(chart_.least_x_tick, tick_distance(last_x_ - first_x_, 8));
  }

  std::string draw() {
    begin();
    grid();
    for (const LineChart::Mark& mark : chart_.marks) {
      stroke(kLeft, y(mark.y), kLeft + kPlotWidth, y(mark.y), mark.color, kDashes);
    }
    for (const LineChart::Line& line : chart_.lines) draw_line(line);
    axes();
    legend();
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  void leave_out_what_has_no_place() {
    const auto has_none = [this](double y) {
      return !std::isfinite(y) || (chart_.y_scale == LineChart::Scale::kLogarithmic && y <= 0);
    };
    const auto leave_out = [](auto& all, const auto& what) {
      all.erase(std::remove_if(all.begin(), all.end(), what), all.end());
    };
    leave_out(chart_.marks, [&](const LineChart::Mark& mark) { return has_none(mark.y); });
    for (LineChart::Line& line : chart_.lines) {
      leave_out(line.points, [&](const LineChart::Point& point) {
        return !std::isfinite(point.x) || has_none(point.y);
      });
    }
  }

  double x(double value) const {
    return kLeft + kPlotWidth * (value - first_x_) / (last_x_ - first_x_);
  }
  double y(double value) const {
    const auto scaled = [this](double height) {
      return chart_.y_scale == LineChart::Scale::kLogarithmic ? std::log(height) : height;
    };
    return kTop + kPlotHeight * (scaled(top_) - scaled(value)) / (scaled(top_) - scaled(bottom_));
  }

  void divide_linear(const std::vector<double>& heights) {
    double lowest = 0;
    double highest = 0;
    for (const double height : heights) {
      lowest = std::min(lowest, height);
      highest = std::max(highest, height);
    }
    if (lowest == 0) highest = std::max(highest, 1.0);
    const double tick = tick_distance(highest - lowest, 6);
    top_ = tick * std::ceil(highest * 1.02 / tick);
    bottom_ = tick * std::floor(lowest * 1.02 / tick);
    for (double step = std::round(bottom_ / tick); step <= std::round(top_ / tick); ++step) {
      y_ticks_.push_back(step * tick);
    }
  }

  // From one to another of 1, 2 and 5 times a power of ten, with those between them, or as many
  // powers of ten as can be told apart.
  void divide_logarithmic(const std::vector<double>& heights) {
    find_logarithmic_ends(heights);
    constexpr std::size_t kMostTicks = 12;
    if (y_ticks_.size() <= kMostTicks) return;
    const double stride = std::ceil(std::log10(top_ / bottom_) / kMostTicks);
    const auto is_between = [stride](double at) {
      const double power = std::log10(at) / stride;
      return std::abs(power - std::round(power)) > 1e-6;
    };
    y_ticks_.erase(std::remove_if(y_ticks_.begin(), y_ticks_.end(), is_between), y_ticks_.end());
  }

  void find_logarithmic_ends(const std::vector<double>& heights) {
    const auto [lowest, highest] = std::minmax_element(heights.begin(), heights.end());
    const double least = heights.empty() ? 1.0 : *lowest;
    const double most = heights.empty() ? 1.0 : *highest;
    for (double power = std::pow(10, std::floor(std::log10(least)));; power *= 10) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double at = factor * power;
        if (at <= least) y_ticks_.clear();
        y_ticks_.push_back(at);
        if (at > most && y_ticks_.size() > 1) {
          bottom_ = y_ticks_.front();
          top_ = at;
          return;
        }
      }
    }
  }

  void begin() {
    svg_ += "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(kWidth) + "\" height=\"" +
            number(kHeight) + "\" viewBox=\"0 0 " + number(kWidth) + " " + number(kHeight) +
            "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\">\n";
    svg_ += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    text(kLeft, 24, chart_.title, "start", "font-size=\"17\" font-weight=\"bold\"");
  }

  void grid() {
    for (const double at : y_ticks_) {
      stroke(kLeft, y(at), kLeft + kPlotWidth, y(at), kGridColor, "");
      text(kLeft - 10, y(at) + 4.5, label(at), "end");
    }
    // The corner has the label of the other axis.
    const double first = first_x_ == 0 ? 1 : std::ceil(first_x_ / x_tick_);
    for (double at = x_tick_ * first; at <= last_x_; at += x_tick_) {
      stroke(x(at), kTop, x(at), kTop + kPlotHeight, kGridColor, "");
      text(x(at), kTop + kPlotHeight + 20, label(at), "middle");
    }
  }

  void draw_line(const LineChart::Line& line) {
    if (line.points.size() == 1) {
      // A line of one point has no length, and would not be seen.
      const LineChart::Point& only = line.points.front();
      svg_ += "<circle cx=\"" + pixel(x(only.x)) + "\" cy=\"" + pixel(y(only.y)) + "\" r=\"" +
              number(std::max(line.width, 2.5)) + "\" fill=\"" + line.color + "\"/>\n";
      return;
    }
    svg_ += "<polyline fill=\"none\" stroke-linejoin=\"round\" stroke=\"" + line.color +
            "\" stroke-width=\"" + number(line.width) + "\" points=\"";
    for (const LineChart::Point& point : line.points) {
      svg_ += pixel(x(point.x)) + "," + pixel(y(point.y)) + " ";
    }
    svg_ += "\"/>\n";
  }

  void axes() {
    stroke(kLeft, kTop, kLeft, kTop + kPlotHeight, kTextColor, "");
    stroke(kLeft, kTop + kPlotHeight, kLeft + kPlotWidth, kTop + kPlotHeight, kTextColor, "");
    text(kLeft + kPlotWidth / 2, kHeight - 14, chart_.x_label, "middle");
    const std::string middle = number(kTop + kPlotHeight / 2);
    text(20, kTop + kPlotHeight / 2, chart_.y_label, "middle",
         "transform=\"rotate(-90 20 " + middle + ")\"");
  }

  // Below the title, at the right end.
  void legend() {
    double at = kLeft + kPlotWidth + kEntryGap;
    const auto entry = [&](const std::string& name, const std::string& color,
                           std::string_view style) {
      at -= kSampleWidth + kLetterWidth * static_cast<double>(name.size()) + kEntryGap;
      stroke(at, 41.5, at + 24, 41.5, color, style);
      text(at + kSampleWidth, 46, name, "start");
    };
    for (auto mark = chart_.marks.rbegin(); mark != chart_.marks.rend(); ++mark) {
      entry(mark->label, mark->color, kDashes);
    }
    for (auto line = chart_.lines.rbegin(); line != chart_.lines.rend(); ++line) {
      entry(line->label, line->color,
            "stroke-width=\"" + number(std::max(line->width, 2.0)) + "\"");
    }
  }

  // Multiples of ticks like 0.1 are not quite what they look like; and a zero has no sign.
  static std::string label(double value) {
    std::array<char, 32> digits{};
    const auto end =
        std::to_chars(digits.begin(), digits.end(), value + 0.0, std::chars_format::general, 6);
    return std::string(digits.begin(), end.ptr);
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

  LineChart chart_;
  std::vector<double> y_ticks_;
  double bottom_ = 0;
  double top_ = 1;
  double first_x_ = 0;
  double last_x_ = 1;
  double x_tick_ = 1;
  std::string svg_;
};

}  // namespace

std::string to_svg(const LineChart& chart) { return Picture(chart).draw(); }

}  // namespace examples
