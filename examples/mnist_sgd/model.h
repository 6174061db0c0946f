#pragma once

#include "torch/nn/modules/conv.h"
#include "torch/nn/modules/dropout.h"
#include "torch/nn/modules/linear.h"

namespace mnist_sgd {

/// The network of PyTorch's tutorial: two convolutions and two layers, with dropout.
class ConvNet : public torch::nn::Module {
 public:
  ConvNet();
  /// {count, 1, 28, 28} pictures to {count, 10} logarithms of probabilities.
  at::Tensor forward(const at::Tensor& pictures);

 private:
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::Conv2d conv2_{nullptr};
  torch::nn::Dropout2d conv2_dropout_{nullptr};
  torch::nn::Linear hidden_{nullptr};
  torch::nn::Linear scores_{nullptr};
};

}  // namespace mnist_sgd
