#include "residual_blocks.h"

#include "ATen/ATen.h"

namespace image_classifier {

torch::nn::Sequential downsampling(std::int64_t in, std::int64_t out, std::int64_t stride,
                                   const Norms& norms) {
  if (stride == 1 && in == out) return nullptr;
  torch::nn::Sequential way(convolution(in, out, 1, stride));
  way->push_back(norms.make(out));
  return way;
}

BasicBlock::BasicBlock(const BlockShape& shape, const Norms& norms) : shape_(shape), norms_(norms) {
  BasicBlock::reset();
}

void BasicBlock::reset() {
  conv1_ = register_module("conv1", convolution(shape_.in, shape_.planes, 3, shape_.stride));
  bn1_ = norms_.make(shape_.planes);
  register_module("bn1", bn1_.ptr());
  conv2_ = register_module("conv2", convolution(shape_.planes, shape_.planes, 3, 1));
  bn2_ = norms_.make(shape_.planes);
  register_module("bn2", bn2_.ptr());
  downsample_ = downsampling(shape_.in, shape_.planes, shape_.stride, norms_);
  if (downsample_) register_module("downsample", downsample_);
}

at::Tensor BasicBlock::forward(const at::Tensor& input) {
  at::Tensor x = bn1_.forward(conv1_->forward(input)).relu_();
  x = bn2_.forward(conv2_->forward(x));
  x += downsample_ ? downsample_->forward(input) : input;
  return x.relu_();
}

Bottleneck::Bottleneck(const BlockShape& shape, const Norms& norms) : shape_(shape), norms_(norms) {
  Bottleneck::reset();
}

void Bottleneck::reset() {
  const std::int64_t out = shape_.planes * kExpansion;
  conv1_ = register_module("conv1", convolution(shape_.in, shape_.planes, 1, 1));
  bn1_ = norms_.make(shape_.planes);
  register_module("bn1", bn1_.ptr());
  conv2_ = register_module("conv2", convolution(shape_.planes, shape_.planes, 3, shape_.stride));
  bn2_ = norms_.make(shape_.planes);
  register_module("bn2", bn2_.ptr());
  conv3_ = register_module("conv3", convolution(shape_.planes, out, 1, 1));
  bn3_ = norms_.make(out);
  register_module("bn3", bn3_.ptr());
  downsample_ = downsampling(shape_.in, out, shape_.stride, norms_);
  if (downsample_) register_module("downsample", downsample_);
}

at::Tensor Bottleneck::forward(const at::Tensor& input) {
  at::Tensor x = bn1_.forward(conv1_->forward(input)).relu_();
  x = bn2_.forward(conv2_->forward(x)).relu_();
  x = bn3_.forward(conv3_->forward(x));
  x += downsample_ ? downsample_->forward(input) : input;
  return x.relu_();
}

}  // namespace image_classifier
