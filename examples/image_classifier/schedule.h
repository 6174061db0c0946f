#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace image_classifier {

/// At these epochs the rate becomes a share of what it was. Without any it goes down along half a
/// cosine.
struct RateSteps {
  std::vector<double> epochs;
  double factor = 0.1;

  /// "cosine", or "steps:30,60:0.1", whose factor may be left out. None: it is neither, or the
  /// epochs do not ascend, or the factor is not between 0 and 1.
  static std::optional<RateSteps> parse(const std::string& text);
};

/// How the learning rate goes: up in a line while the training warms up, and down along half a
/// cosine to 0, as in "SGDR" (Loshchilov and Hutter, 2016) and "Accurate, Large Minibatch SGD"
/// (Goyal et al., 2017), or in steps, as in He et al. (2015).
struct Schedule {
  /// At its highest, if nothing was warmed up.
  double peak = 0.1;
  /// The first epochs, with a share of the rate that grows from `warmup_factor` to 1.
  double warmup_epochs = 0;
  double warmup_factor = 0.1;
  /// All epochs.
  double epochs = 1;
  RateSteps steps;

  /// At a time in epochs, from 0 to `epochs`; 1.5 is the middle of the second one.
  double rate(double epoch) const;
};

/// The rate for a batch of `batch` samples when `lr` is that for 256 (Goyal's rule).
double linearly_scaled(double lr, std::int64_t batch);

}  // namespace image_classifier
