#include "loss_curve.h"

#include <charconv>
#include <cmath>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "sinew/examples/common/files.h"
#include "sinew/examples/common/line_chart.h"

namespace ps_rnn {
namespace {

constexpr const char* kHeader = "epoch,train_loss,valid_loss,valid_perplexity";

double to_number(const std::string& cell, const std::string& line) {
  double value = 0;
  const char* end = cell.data() + cell.size();
  const auto parsed = std::from_chars(cell.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || !std::isfinite(value)) {
    throw std::runtime_error("this is no line of a loss curve: " + line);
  }
  return value;
}

}  // namespace

std::string to_csv(const LossCurve& curve) {
  std::string csv = std::string(kHeader) + "\n";
  for (const LossCurve::Point& point : curve.points) {
    csv += examples::number(point.epoch) + "," + examples::number(point.train_loss) + ",";
    if (point.valid_loss > 0) {
      csv +=
          examples::number(point.valid_loss) + "," + examples::number(std::exp(point.valid_loss));
    } else {
      csv += ",";
    }
    csv += "\n";
  }
  return csv;
}

std::vector<LossCurve::Point> points_from_csv(const std::string& csv, double last) {
  std::vector<LossCurve::Point> points;
  std::istringstream lines(csv);
  std::string line;
  if (!std::getline(lines, line) || line != kHeader) {
    throw std::runtime_error("a loss curve begins with " + std::string(kHeader) + ", not " + line);
  }
  while (std::getline(lines, line)) {
    std::istringstream cells(line);
    std::string epoch, train_loss, valid_loss;
    std::getline(cells, epoch, ',');
    std::getline(cells, train_loss, ',');
    std::getline(cells, valid_loss, ',');
    const LossCurve::Point point{to_number(epoch, line), to_number(train_loss, line),
                                 valid_loss.empty() ? 0 : to_number(valid_loss, line)};
    if (point.epoch <= last) points.push_back(point);
  }
  return points;
}

std::string to_svg(const LossCurve& curve) {
  examples::LineChart::Line train{"training", "#9db7d5", 1, {}};
  examples::LineChart::Line valid{"validation", "#1f4e8c", 2.5, {}};
  for (const LossCurve::Point& point : curve.points) {
    train.points.push_back({point.epoch, std::exp(point.train_loss)});
    if (point.valid_loss > 0) valid.points.push_back({point.epoch, std::exp(point.valid_loss)});
  }
  examples::LineChart chart;
  chart.title = curve.title;
  chart.x_label = "Epoch";
  chart.y_label = "Perplexity";
  // An untrained model is as bad as its vocabulary is large, and would flatten all else.
  chart.y_scale = examples::LineChart::Scale::kLogarithmic;
  if (curve.unigram_perplexity > 0) {
    chart.marks = {{"unigram model " + examples::fixed(curve.unigram_perplexity, 1), "#2e8b57",
                    curve.unigram_perplexity}};
  }
  chart.lines = {std::move(train), std::move(valid)};
  return examples::to_svg(chart);
}

}  // namespace ps_rnn
