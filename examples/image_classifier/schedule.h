#pragma once

#include <cstdint>

namespace image_classifier {

/// How the learning rate goes: up in a line while the training warms up, and down along half a
/// cosine to 0, as in "SGDR" (Loshchilov and Hutter, 2016) and "Accurate, Large Minibatch SGD"
/// (Goyal et al., 2017).
struct Schedule {
  /// At its highest, if nothing was warmed up.
  double peak = 0.1;
  /// The first epochs, with a share of the rate that grows from `warmup_factor` to 1.
  double warmup_epochs = 0;
  double warmup_factor = 0.1;
  /// All epochs.
  double epochs = 1;

  /// At a time in epochs, from 0 to `epochs`; 1.5 is the middle of the second one.
  double rate(double epoch) const;
};

/// The rate for a batch of `batch` samples when `lr` is that for 256 (Goyal's rule).
double linearly_scaled(double lr, std::int64_t batch);

}  // namespace image_classifier
