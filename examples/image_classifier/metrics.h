#pragma once

#include "ATen/core/Tensor.h"

namespace image_classifier {

/// How well some samples were classified.
struct Metrics {
  /// Sum of their cross entropies.
  double loss = 0;
  /// Samples whose class has the highest score, or one of the five highest.
  double top1 = 0;
  double top5 = 0;
  double samples = 0;

  Metrics& operator+=(const Metrics& other);
  double mean_loss() const { return loss / samples; }
  double top1_share() const { return top1 / samples; }
  double top5_share() const { return top5 / samples; }
};

/// The four figures of `Metrics` as a {4} tensor of doubles on the device of `scores`, so that
/// nobody waits for the device. `scores` {count, classes}, `labels` {count}; `loss` is the mean
/// over them.
at::Tensor sums_of(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& loss);
Metrics to_metrics(const at::Tensor& sums);

}  // namespace image_classifier
