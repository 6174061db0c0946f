#include "metrics.h"

#include <algorithm>

#include "ATen/ops/full_like.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/topk.h"
#include "ATen/ops/zeros.h"
#include "sinew/examples/common/files.h"

namespace image_classifier {

Metrics& Metrics::operator+=(const Metrics& other) {
  loss += other.loss;
  samples += other.samples;
  top.resize(std::max(top.size(), other.top.size()));
  for (std::size_t i = 0; i < other.top.size(); ++i) top[i] += other.top[i];
  return *this;
}

at::Tensor sums_of(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& loss,
                   const std::vector<std::int64_t>& top) {
  const std::int64_t classes = scores.size(1);
  const std::int64_t highest = std::min(classes, *std::max_element(top.begin(), top.end()));
  const at::Tensor best = std::get<1>(at::topk(scores.detach(), highest, 1));
  const at::Tensor right = best.eq(labels.unsqueeze(1)).to(at::kDouble);
  const at::Tensor sum = loss.detach().to(at::kDouble).mul(labels.size(0));
  std::vector<at::Tensor> sums = {sum, at::full_like(sum, static_cast<double>(labels.size(0)))};
  for (const std::int64_t k : top) {
    sums.push_back(right.narrow(1, 0, std::min(classes, k)).sum());
  }
  return at::stack(sums);
}

at::Tensor no_sums(const std::vector<std::int64_t>& top, const at::Device& device) {
  return at::zeros({static_cast<std::int64_t>(top.size()) + 2},
                   at::TensorOptions(device).dtype(at::kDouble));
}

Metrics to_metrics(const at::Tensor& sums) {
  const at::Tensor here = sums.to(at::kCPU, at::kDouble).contiguous();
  const auto* values = here.data_ptr<double>();
  return {values[0], values[1], std::vector<double>(values + 2, values + here.numel())};
}

at::Tensor to_tensor(const Metrics& metrics) {
  std::vector<double> values = {metrics.loss, metrics.samples};
  values.insert(values.end(), metrics.top.begin(), metrics.top.end());
  return at::tensor(values, at::kDouble);
}

std::string shares_text(const Metrics& metrics, const std::vector<std::int64_t>& top) {
  std::string text = "loss " + examples::fixed(metrics.mean_loss(), 4);
  for (std::size_t i = 0; i < top.size(); ++i) {
    text += ", top-" + std::to_string(top[i]) + " " + examples::fixed(metrics.top_share(i), 4);
  }
  return text;
}

}  // namespace image_classifier
