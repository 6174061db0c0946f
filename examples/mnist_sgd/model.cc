#include "model.h"

#include "ATen/ATen.h"

namespace mnist_sgd {
namespace {
constexpr std::int64_t kFeatures = 20 * 4 * 4;
}  // namespace

ConvNet::ConvNet() {
  conv1_ = register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 10, 5)));
  conv2_ = register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(10, 20, 5)));
  conv2_dropout_ = register_module("conv2_dropout", torch::nn::Dropout2d());
  hidden_ = register_module("hidden", torch::nn::Linear(kFeatures, 50));
  scores_ = register_module("scores", torch::nn::Linear(50, 10));
}

at::Tensor ConvNet::forward(const at::Tensor& pictures) {
  at::Tensor x = at::relu(at::max_pool2d(conv1_->forward(pictures), 2));
  x = conv2_dropout_->forward(conv2_->forward(x));
  x = at::relu(at::max_pool2d(x, 2)).view({-1, kFeatures});
  x = at::dropout(at::relu(hidden_->forward(x)), 0.5, is_training());
  return at::log_softmax(scores_->forward(x), 1);
}

}  // namespace mnist_sgd
