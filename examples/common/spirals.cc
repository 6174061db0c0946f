#include "sinew/examples/common/spirals.h"

#include <cmath>
#include <random>

#include "ATen/ATen.h"

namespace examples {
namespace {

constexpr double kTurns = 0.75;
constexpr double kNoise = 0.15;
constexpr double kTau = 6.283185307179586;

}  // namespace

Spirals Spirals::make(std::int64_t count, std::int64_t seed) {
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  // The library's distributions differ from one implementation to the next.
  const auto unit = [&random] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  Spirals spirals{at::empty({count, 2}), at::empty({count}, at::kLong)};
  auto* point = spirals.points.data_ptr<float>();
  auto* arm = spirals.arms.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    arm[i] = i % kClasses;
    const double radius = 0.05 + 0.95 * unit();
    const double angle = kTau * (static_cast<double>(arm[i]) / kClasses + kTurns * radius) +
                         kNoise * (unit() + unit() - 1);
    *point++ = static_cast<float>(radius * std::cos(angle));
    *point++ = static_cast<float>(radius * std::sin(angle));
  }
  return spirals;
}

double accuracy(const at::Tensor& scores, const at::Tensor& arms) {
  return scores.argmax(1).eq(arms).to(at::kDouble).mean().item<double>();
}

}  // namespace examples
