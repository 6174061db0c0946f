#include "resnet.h"

#include <memory>

#include "ATen/ATen.h"
#include "torch/nn/init.h"

namespace image_classifier {
namespace {

torch::nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel,
                              std::int64_t stride) {
  torch::nn::Conv2d layer(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
  torch::nn::init::kaiming_normal_(layer->weight, 0, torch::kFanOut, torch::kReLU);
  return layer;
}

}  // namespace

BasicBlock::BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride)
    : in_(in), out_(out), stride_(stride) {
  BasicBlock::reset();
}

void BasicBlock::reset() {
  conv1_ = register_module("conv1", convolution(in_, out_, 3, stride_));
  norm1_ = register_module("norm1", torch::nn::BatchNorm2d(out_));
  conv2_ = register_module("conv2", convolution(out_, out_, 3, 1));
  norm2_ = register_module("norm2", torch::nn::BatchNorm2d(out_));
  shortcut_ = register_module("shortcut", torch::nn::Sequential());
  if (stride_ == 1 && in_ == out_) return;
  shortcut_->push_back(convolution(in_, out_, 1, stride_));
  shortcut_->push_back(torch::nn::BatchNorm2d(out_));
}

at::Tensor BasicBlock::forward(const at::Tensor& input) {
  at::Tensor x = norm1_->forward(conv1_->forward(input)).relu_();
  x = norm2_->forward(conv2_->forward(x));
  x += shortcut_->is_empty() ? input : shortcut_->forward(input);
  return x.relu_();
}

ResNet18::ResNet18(const ResNetOptions& options) : options_(options) { ResNet18::reset(); }

void ResNet18::reset() {
  const std::int64_t width = options_.width;
  const bool shrinks = options_.stem == Stem::kImageNet;
  conv_ = register_module("conv",
                          convolution(options_.channels, width, shrinks ? 7 : 3, shrinks ? 2 : 1));
  norm_ = register_module("norm", torch::nn::BatchNorm2d(width));
  stages_ = register_module("stages", torch::nn::Sequential());
  std::int64_t in = width;
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t out = width << stage;
    stages_->push_back(std::make_shared<BasicBlock>(in, out, stage == 0 ? 1 : 2));
    stages_->push_back(std::make_shared<BasicBlock>(out, out, 1));
    in = out;
  }
  scores_ = register_module("scores", torch::nn::Linear(in, options_.classes));
}

at::Tensor ResNet18::forward(const at::Tensor& pictures) {
  at::Tensor x = norm_->forward(conv_->forward(pictures)).relu_();
  if (options_.stem == Stem::kImageNet) x = at::max_pool2d(x, 3, 2, 1);
  x = stages_->forward(x);
  x = at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
  return scores_->forward(x);
}

}  // namespace image_classifier
