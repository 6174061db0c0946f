#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"

namespace image_classifier {

/// How well some samples were classified.
struct Metrics {
  /// Sum of their cross entropies.
  double loss = 0;
  double samples = 0;
  /// For each k that was asked for: samples whose class is among those with the k highest scores.
  std::vector<double> top;

  Metrics& operator+=(const Metrics& other);
  double mean_loss() const { return loss / samples; }
  double top_share(std::size_t k) const { return top.at(k) / samples; }
};

/// The figures of `Metrics` as a tensor of doubles on the device of `scores`, so that nobody waits
/// for the device. `scores` {count, classes}, `labels` {count}; `loss` is the mean over them.
at::Tensor sums_of(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& loss,
                   const std::vector<std::int64_t>& top);
/// Of no samples at all.
at::Tensor no_sums(const std::vector<std::int64_t>& top, const at::Device& device);
Metrics to_metrics(const at::Tensor& sums);
at::Tensor to_tensor(const Metrics& metrics);

/// "loss 0.3106, top-1 0.9010, top-5 0.9846"
std::string shares_text(const Metrics& metrics, const std::vector<std::int64_t>& top);

}  // namespace image_classifier
