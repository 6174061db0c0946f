#pragma once

#include <cstdint>

#include "torch/nn/cloneable.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/conv.h"
#include "torch/nn/modules/linear.h"

namespace image_classifier {

/// What the first layers do with a picture.
enum class Stem {
  /// Shrink it to a quarter of its height and width, as in the paper.
  kImageNet,
  /// Leave it as it is; for pictures of 32 times 32 pixels.
  kCifar,
};

struct ResNetOptions {
  Stem stem = Stem::kImageNet;
  /// Channels of a picture.
  std::int64_t channels = 3;
  /// Channels of the first stage.
  std::int64_t width = 64;
  std::int64_t classes = 10;
};

/// Two convolutions, with a way past them.
class BasicBlock : public torch::nn::Cloneable<BasicBlock> {
 public:
  BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride);
  void reset() override;
  at::Tensor forward(const at::Tensor& input);

 private:
  // Not const: a clone is assigned to.
  std::int64_t in_;
  std::int64_t out_;
  std::int64_t stride_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d norm1_{nullptr};
  torch::nn::Conv2d conv2_{nullptr};
  torch::nn::BatchNorm2d norm2_{nullptr};
  /// Empty where input and output have the same sizes.
  torch::nn::Sequential shortcut_{nullptr};
};

/// ResNet-18 (He et al., "Deep Residual Learning for Image Recognition", 2015): four stages of two
/// blocks. It can be cloned, as data_parallel() wants it.
class ResNet18 : public torch::nn::Cloneable<ResNet18> {
 public:
  explicit ResNet18(const ResNetOptions& options);
  /// Makes all layers, with new parameters.
  void reset() override;
  /// {count, channels, height, width} to {count, classes} scores.
  at::Tensor forward(const at::Tensor& pictures);

 private:
  // Not const: a clone is assigned to.
  ResNetOptions options_;
  torch::nn::Conv2d conv_{nullptr};
  torch::nn::BatchNorm2d norm_{nullptr};
  torch::nn::Sequential stages_{nullptr};
  torch::nn::Linear scores_{nullptr};
};

}  // namespace image_classifier
