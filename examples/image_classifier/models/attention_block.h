#pragma once

#include <cstdint>

#include "layers.h"
#include "residual_blocks.h"
#include "torch/nn/cloneable.h"
#include "torch/nn/modules/container/any.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/conv.h"

namespace image_classifier {

/// Height and width of what a layer sees.
struct MapSize {
  std::int64_t height = 14;
  std::int64_t width = 14;
};

/// Multi-head self-attention over the places of a feature map: each place asks all others, also by
/// where they are relative to it. Srinivas et al., "Bottleneck Transformers for Visual Recognition"
/// (2021); the relative positions are those of Ramachandran et al. (2019).
class SelfAttention : public torch::nn::Cloneable<SelfAttention> {
 public:
  static constexpr std::int64_t kHeads = 4;

  /// As many channels come out as go in; a multiple of kHeads.
  SelfAttention(std::int64_t channels, const MapSize& map);
  void reset() override;
  at::Tensor forward(const at::Tensor& input);

 private:
  /// {count, heads, places, channels of a head} to {count, heads, places, places}: what the
  /// distance between two places adds.
  at::Tensor position_logits(const at::Tensor& queries) const;

  std::int64_t channels_;
  MapSize map_;
  torch::nn::Conv2d to_qk_{nullptr};
  torch::nn::Conv2d to_v_{nullptr};
  /// A row for each distance, from 1 - height to height - 1.
  at::Tensor rel_height_;
  at::Tensor rel_width_;
};

/// A bottleneck block with self-attention in the place of its convolution of 3 x 3.
class AttentionBlock : public torch::nn::Cloneable<AttentionBlock>, public Block {
 public:
  AttentionBlock(const BlockShape& shape, const MapSize& map, const Norms& norms);
  void reset() override;
  at::Tensor forward(const at::Tensor& input) override;

 private:
  BlockShape shape_;
  MapSize map_;
  Norms norms_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::AnyModule bn1_;
  std::shared_ptr<SelfAttention> attention_;
  torch::nn::AnyModule bn2_;
  torch::nn::Conv2d conv3_{nullptr};
  torch::nn::AnyModule bn3_;
  torch::nn::Sequential downsample_{nullptr};
};

}  // namespace image_classifier
