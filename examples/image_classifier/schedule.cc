#include "schedule.h"

#include <cmath>

namespace image_classifier {
namespace {
constexpr double kPi = 3.14159265358979323846;
constexpr double kReferenceBatch = 256;
}  // namespace

double Schedule::rate(double epoch) const {
  const double cosine = 0.5 * peak * (1 + std::cos(kPi * epoch / epochs));
  if (epoch >= warmup_epochs) return cosine;
  const double done = epoch / warmup_epochs;
  return cosine * (warmup_factor * (1 - done) + done);
}

double linearly_scaled(double lr, std::int64_t batch) {
  return lr * static_cast<double>(batch) / kReferenceBatch;
}

}  // namespace image_classifier
