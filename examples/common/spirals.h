#pragma once

#include <cstdint>

#include "ATen/core/Tensor.h"

namespace examples {

/// Points on the arms of a spiral, each arm a class: easy to look at, and no line tells them apart.
struct Spirals {
  static constexpr std::int64_t kClasses = 3;

  /// {count, 2}, and {count} numbers of arms.
  at::Tensor points;
  at::Tensor arms;

  /// The same points for the same seed, on every machine.
  static Spirals make(std::int64_t count, std::int64_t seed);
};

/// Share of `arms` that {count, kClasses} scores are right about.
double accuracy(const at::Tensor& scores, const at::Tensor& arms);

}  // namespace examples
