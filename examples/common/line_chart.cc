#include "sinew/examples/common/line_chart.h"

#include <algorithm>
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
  explicit Picture(const LineChart& chart) : chart_(chart) {
    std::vector<double> heights;
    last_x_ = chart.first_x + chart.least_length;
    for (const LineChart::Mark& mark : chart.marks) heights.push_back(mark.y);
    for (const LineChart::Line& line : chart.lines) {
      for (const LineChart::Point& point : line.points) {
        heights.push_back(point.y);
        last_x_ = std::max(last_x_, point.x);
      }
    }
    if (chart.y_scale == LineChart::Scale::kLogarithmic) {
      divide_logarithmic(heights);
    } else {
      divide_linear(heights);
    }
    x_tick_ = std::max(chart.least_x_tick, tick_distance(last_x_, 8));
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
  double x(double value) const {
    return kLeft + kPlotWidth * (value - chart_.first_x) / (last_x_ - chart_.first_x);
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
    for (double at = bottom_; at <= top_ + tick / 2; at += tick) y_ticks_.push_back(at);
  }

  // From one to another of 1, 2 and 5 times a power of ten, with those between them.
  void divide_logarithmic(const std::vector<double>& heights) {
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
    for (double at = x_tick_ * std::max(1.0, std::ceil(chart_.first_x / x_tick_)); at <= last_x_;
         at += x_tick_) {
      stroke(x(at), kTop, x(at), kTop + kPlotHeight, kGridColor, "");
      text(x(at), kTop + kPlotHeight + 20, label(at), "middle");
    }
  }

  void draw_line(const LineChart::Line& line) {
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

  // Sums of ticks like 0.1 are not quite what they look like; and a zero has no sign.
  static std::string label(double value) { return number(std::round(value * 1e6) / 1e6 + 0.0); }

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

  const LineChart& chart_;
  std::vector<double> y_ticks_;
  double bottom_ = 0;
  double top_ = 1;
  double last_x_ = 1;
  double x_tick_ = 1;
  std::string svg_;
};

}  // namespace

std::string to_svg(const LineChart& chart) { return Picture(chart).draw(); }

}  // namespace examples
