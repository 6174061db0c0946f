#include "schedule.h"

#include <charconv>
#include <cmath>
#include <string_view>

namespace image_classifier {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kReferenceBatch = 256;
constexpr std::string_view kCosine = "cosine";
constexpr std::string_view kSteps = "steps:";

std::optional<double> to_number(std::string_view text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<RateSteps> RateSteps::parse(const std::string& text) {
  RateSteps steps;
  std::string_view rest = text;
  if (rest == kCosine) return steps;
  if (rest.substr(0, kSteps.size()) != kSteps) return std::nullopt;
  rest.remove_prefix(kSteps.size());
  if (const std::size_t colon = rest.find(':'); colon != std::string_view::npos) {
    const std::optional<double> factor = to_number(rest.substr(colon + 1));
    if (!factor || !(*factor > 0 && *factor < 1)) return std::nullopt;
    steps.factor = *factor;
    rest = rest.substr(0, colon);
  }
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::optional<double> epoch = to_number(rest.substr(0, comma));
    const double before = steps.epochs.empty() ? 0 : steps.epochs.back();
    // Written so that NaN fails too.
    if (!epoch || !(*epoch > before) || !std::isfinite(*epoch)) return std::nullopt;
    steps.epochs.push_back(*epoch);
    if (comma == std::string_view::npos) return steps;
    rest.remove_prefix(comma + 1);
  }
}

double Schedule::rate(double epoch) const {
  double warm = 0.5 * peak * (1 + std::cos(kPi * epoch / epochs));
  if (!steps.epochs.empty()) {
    warm = peak;
    for (const double at : steps.epochs) warm *= epoch >= at ? steps.factor : 1;
  }
  if (epoch >= warmup_epochs) return warm;
  const double done = epoch / warmup_epochs;
  return warm * (warmup_factor * (1 - done) + done);
}

double linearly_scaled(double lr, std::int64_t batch) {
  return lr * static_cast<double>(batch) / kReferenceBatch;
}

}  // namespace image_classifier
