#pragma once

#include <cstdint>

#include "layers.h"
#include "torch/nn/cloneable.h"
#include "torch/nn/modules/container/any.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/conv.h"

namespace image_classifier {

struct BlockShape {
  std::int64_t in = 64;
  /// Channels within the block.
  std::int64_t planes = 64;
  std::int64_t stride = 1;
};

/// The way past the layers of a block, where input and output have other sizes; else empty, and
/// null.
torch::nn::Sequential downsampling(std::int64_t in, std::int64_t out, std::int64_t stride,
                                   const Norms& norms);

/// Two convolutions, with a way past them.
class BasicBlock : public torch::nn::Cloneable<BasicBlock>, public Block {
 public:
  static constexpr std::int64_t kExpansion = 1;

  BasicBlock(const BlockShape& shape, const Norms& norms);
  void reset() override;
  at::Tensor forward(const at::Tensor& input) override;

 private:
  // Not const: a clone is assigned to.
  BlockShape shape_;
  Norms norms_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::AnyModule bn1_;
  torch::nn::Conv2d conv2_{nullptr};
  torch::nn::AnyModule bn2_;
  torch::nn::Sequential downsample_{nullptr};
};

/// Three convolutions, of which the first one makes the channels fewer and the last one more, with
/// a way past them. The one in the middle has the stride, as in torchvision.
class Bottleneck : public torch::nn::Cloneable<Bottleneck>, public Block {
 public:
  static constexpr std::int64_t kExpansion = 4;

  Bottleneck(const BlockShape& shape, const Norms& norms);
  void reset() override;
  at::Tensor forward(const at::Tensor& input) override;

 private:
  BlockShape shape_;
  Norms norms_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::AnyModule bn1_;
  torch::nn::Conv2d conv2_{nullptr};
  torch::nn::AnyModule bn2_;
  torch::nn::Conv2d conv3_{nullptr};
  torch::nn::AnyModule bn3_;
  torch::nn::Sequential downsample_{nullptr};
};

}  // namespace image_classifier
