#pragma once

#include <cstdint>
#include <optional>

#include "sinew/groups/process_group.h"
#include "torch/nn/module.h"
#include "torch/nn/modules/container/any.h"
#include "torch/nn/modules/conv.h"

namespace image_classifier {

/// Without bias, since a norm follows; drawn as in the paper of He et al. (2015).
torch::nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel,
                              std::int64_t stride);

/// Makes the norms of a network: those of each rank alone, or those of a group.
class Norms {
 public:
  explicit Norms(std::optional<sinew::ProcessGroup> group = std::nullopt)
      : group_(std::move(group)) {}
  /// A BatchNorm2d or a SyncBatchNorm; their parameters have the same names.
  torch::nn::AnyModule make(std::int64_t channels) const;

 private:
  std::optional<sinew::ProcessGroup> group_;
};

/// What the stages of a network are made of.
class Block : public virtual torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& input) = 0;
};

}  // namespace image_classifier
