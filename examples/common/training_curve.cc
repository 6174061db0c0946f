#include "sinew/examples/common/training_curve.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "sinew/examples/common/files.h"
#include "sinew/examples/common/line_chart.h"

namespace examples {
namespace {

// The last one lies above the others, so it is the one that is seen best.
constexpr std::array<const char*, 6> kColors = {"#9db7d5", "#d9a86c", "#2e8b57",
                                                "#8c5fa8", "#c0504d", "#1f4e8c"};

std::string header(const TrainingCurve& curve) {
  std::string line = curve.clock;
  for (const std::string& name : curve.names) line += "," + name;
  return line;
}

double to_number(const std::string& cell, const std::string& line) {
  double value = 0;
  const char* end = cell.data() + cell.size();
  const auto parsed = std::from_chars(cell.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || !std::isfinite(value)) {
    throw std::runtime_error("this is no line of a training curve: " + line);
  }
  return value;
}

TrainingCurve::Point to_point(const std::string& line, std::size_t values) {
  std::istringstream cells(line);
  std::string cell;
  std::getline(cells, cell, ',');
  TrainingCurve::Point point{to_number(cell, line), {}};
  while (std::getline(cells, cell, ',')) {
    point.values.push_back(cell.empty() ? std::numeric_limits<double>::quiet_NaN()
                                        : to_number(cell, line));
  }
  // What follows the last comma is no cell for getline when it is empty.
  if (!line.empty() && line.back() == ',') {
    point.values.push_back(std::numeric_limits<double>::quiet_NaN());
  }
  if (point.values.size() != values) {
    throw std::runtime_error("this line of a training curve has not " + std::to_string(values) +
                             " figures: " + line);
  }
  return point;
}

}  // namespace

std::string to_csv(const TrainingCurve& curve) {
  std::string csv = header(curve) + "\n";
  for (const TrainingCurve::Point& point : curve.points) {
    csv += number(point.at);
    for (const double value : point.values) {
      csv += "," + (std::isnan(value) ? std::string() : number(value));
    }
    csv += "\n";
  }
  return csv;
}

std::vector<TrainingCurve::Point> points_from_csv(const TrainingCurve& curve,
                                                  const std::string& csv, double last) {
  std::vector<TrainingCurve::Point> points;
  std::istringstream lines(csv);
  std::string line;
  if (!std::getline(lines, line) || line != header(curve)) {
    throw std::runtime_error("this training curve begins with " + header(curve) + ", not " + line);
  }
  while (std::getline(lines, line)) {
    TrainingCurve::Point point = to_point(line, curve.names.size());
    if (point.at <= last) points.push_back(std::move(point));
  }
  return points;
}

std::string to_svg(const TrainingCurve& curve) {
  LineChart chart;
  chart.title = curve.title;
  chart.x_label = curve.clock;
  chart.y_label = curve.unit;
  if (curve.goal) {
    chart.marks = {{"goal " + number(std::round(*curve.goal * 100) / 100), "#2e8b57", *curve.goal}};
  }
  for (std::size_t i = 0; i < curve.names.size(); ++i) {
    const std::size_t color = i + 1 == curve.names.size() ? kColors.size() - 1 : i;
    LineChart::Line line{curve.names[i], kColors[color % kColors.size()], 2, {}};
    for (const TrainingCurve::Point& point : curve.points) {
      if (!std::isnan(point.values[i])) line.points.push_back({point.at, point.values[i]});
    }
    chart.lines.push_back(std::move(line));
  }
  return to_svg(chart);
}

void write_curve(const TrainingCurve& curve, const std::filesystem::path& folder,
                 const std::string& name) {
  replace_file(folder / (name + ".csv"), to_csv(curve));
  replace_file(folder / (name + ".svg"), to_svg(curve));
}

}  // namespace examples
