#include "attention_block.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include "ATen/ATen.h"
#include "torch/nn/init.h"

namespace image_classifier {
namespace {

torch::nn::Conv2d projection(std::int64_t in, std::int64_t out) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 1).bias(false));
}

/// {side, side, channels}: the row of `table` for each pair of coordinates.
at::Tensor by_pair(const at::Tensor& table, std::int64_t side) {
  const at::Tensor places = at::arange(side, at::TensorOptions(table.device()).dtype(at::kLong));
  const at::Tensor distance = places.unsqueeze(0) - places.unsqueeze(1) + (side - 1);
  return table.index_select(0, distance.flatten()).view({side, side, -1});
}

}  // namespace

SelfAttention::SelfAttention(std::int64_t channels, const MapSize& map)
    : channels_(channels), map_(map) {
  if (channels % kHeads != 0) {
    throw std::invalid_argument("self-attention with " + std::to_string(kHeads) + " heads takes " +
                                std::to_string(kHeads) + ", " + std::to_string(2 * kHeads) +
                                ", ... channels, and not " + std::to_string(channels));
  }
  SelfAttention::reset();
}

void SelfAttention::reset() {
  const std::int64_t of_head = channels_ / kHeads;
  const double scale = 1 / std::sqrt(static_cast<double>(of_head));
  to_qk_ = register_module("to_qk", projection(channels_, 2 * channels_));
  to_v_ = register_module("to_v", projection(channels_, channels_));
  rel_height_ = register_parameter("rel_height", at::randn({2 * map_.height - 1, of_head}) * scale);
  rel_width_ = register_parameter("rel_width", at::randn({2 * map_.width - 1, of_head}) * scale);
}

at::Tensor SelfAttention::position_logits(const at::Tensor& queries) const {
  const std::int64_t places = map_.height * map_.width;
  const at::Tensor by_place =
      queries.view({queries.size(0), kHeads, map_.height, map_.width, queries.size(3)});
  const at::Tensor rows =
      at::einsum("nhyxd,yvd->nhyxv", {by_place, by_pair(rel_height_, map_.height)});
  const at::Tensor columns =
      at::einsum("nhyxd,xud->nhyxu", {by_place, by_pair(rel_width_, map_.width)});
  return (rows.unsqueeze(5) + columns.unsqueeze(4))
      .reshape({queries.size(0), kHeads, places, places});
}

at::Tensor SelfAttention::forward(const at::Tensor& input) {
  if (input.size(2) != map_.height || input.size(3) != map_.width) {
    throw std::invalid_argument(
        "this network was made for feature maps of " + std::to_string(map_.height) + " x " +
        std::to_string(map_.width) + ", and not of " + std::to_string(input.size(2)) + " x " +
        std::to_string(input.size(3)) + ": its positions are learnt for one size of pictures");
  }
  const std::int64_t count = input.size(0);
  const auto by_head = [&](const at::Tensor& all) {
    return all.reshape({count, kHeads, channels_ / kHeads, -1}).transpose(2, 3).contiguous();
  };
  const std::vector<at::Tensor> qk = to_qk_->forward(input).chunk(2, 1);
  const double scale = 1 / std::sqrt(static_cast<double>(channels_ / kHeads));
  const at::Tensor queries = by_head(qk[0]) * scale;
  const at::Tensor logits =
      at::matmul(queries, by_head(qk[1]).transpose(2, 3)) + position_logits(queries);
  const at::Tensor seen = at::matmul(logits.softmax(-1), by_head(to_v_->forward(input)));
  return seen.transpose(2, 3).reshape(input.sizes());
}

AttentionBlock::AttentionBlock(const BlockShape& shape, const MapSize& map, const Norms& norms)
    : shape_(shape), map_(map), norms_(norms) {
  AttentionBlock::reset();
}

void AttentionBlock::reset() {
  const std::int64_t out = shape_.planes * Bottleneck::kExpansion;
  conv1_ = register_module("conv1", convolution(shape_.in, shape_.planes, 1, 1));
  bn1_ = norms_.make(shape_.planes);
  register_module("bn1", bn1_.ptr());
  attention_ = register_module("attention", std::make_shared<SelfAttention>(shape_.planes, map_));
  bn2_ = norms_.make(shape_.planes);
  register_module("bn2", bn2_.ptr());
  conv3_ = register_module("conv3", convolution(shape_.planes, out, 1, 1));
  bn3_ = norms_.make(out);
  register_module("bn3", bn3_.ptr());
  // A block begins as the way past it.
  const at::NoGradGuard no_grad;
  bn3_.ptr()->named_parameters()["weight"].zero_();
  downsample_ = downsampling(shape_.in, out, shape_.stride, norms_);
  if (downsample_) register_module("downsample", downsample_);
}

at::Tensor AttentionBlock::forward(const at::Tensor& input) {
  at::Tensor x = bn1_.forward(conv1_->forward(input)).relu_();
  x = bn2_.forward(attention_->forward(x)).relu_();
  x = bn3_.forward(conv3_->forward(x));
  x += downsample_ ? downsample_->forward(input).relu_() : input;
  return x.relu_();
}

}  // namespace image_classifier
