#include "metrics.h"

#include <algorithm>

#include "ATen/ops/full_like.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/topk.h"

namespace image_classifier {

Metrics& Metrics::operator+=(const Metrics& other) {
  loss += other.loss;
  top1 += other.top1;
  top5 += other.top5;
  samples += other.samples;
  return *this;
}

at::Tensor sums_of(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& loss) {
  const std::int64_t highest = std::min<std::int64_t>(5, scores.size(1));
  const at::Tensor best = std::get<1>(at::topk(scores.detach(), highest, 1));
  const at::Tensor right = best.eq(labels.unsqueeze(1)).to(at::kDouble);
  const at::Tensor sum = loss.detach().to(at::kDouble).mul(labels.size(0));
  return at::stack({sum, right.select(1, 0).sum(), right.sum(),
                    at::full_like(sum, static_cast<double>(labels.size(0)))});
}

Metrics to_metrics(const at::Tensor& sums) {
  const at::Tensor here = sums.to(at::kCPU, at::kDouble).contiguous();
  const auto* values = here.data_ptr<double>();
  return {values[0], values[1], values[2], values[3]};
}

}  // namespace image_classifier
