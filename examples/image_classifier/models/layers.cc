#include "layers.h"

#include "sinew/parallel/sync_batch_norm.h"
#include "torch/nn/init.h"
#include "torch/nn/modules/batchnorm.h"

namespace image_classifier {

torch::nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel,
                              std::int64_t stride) {
  torch::nn::Conv2d layer(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
  torch::nn::init::kaiming_normal_(layer->weight, 0, torch::kFanOut, torch::kReLU);
  return layer;
}

torch::nn::AnyModule Norms::make(std::int64_t channels) const {
  if (!group_) return torch::nn::AnyModule(torch::nn::BatchNorm2d(channels));
  return torch::nn::AnyModule(
      sinew::parallel::SyncBatchNorm(torch::nn::BatchNormOptions(channels), *group_));
}

}  // namespace image_classifier
