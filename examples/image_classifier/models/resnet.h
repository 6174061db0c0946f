#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attention_block.h"
#include "layers.h"
#include "sinew/groups/process_group.h"
#include "torch/nn/cloneable.h"
#include "torch/nn/modules/container/any.h"
#include "torch/nn/modules/container/modulelist.h"
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

/// What becomes of the activations of a block.
enum class Activations {
  /// They wait for the backward pass.
  kKept,
  /// They are computed again there (sinew/parallel/checkpoint.h).
  kComputedAgain,
};

struct ResNetOptions {
  /// One of model_names().
  std::string model = "resnet18";
  Stem stem = Stem::kImageNet;
  /// Channels of a picture.
  std::int64_t channels = 3;
  /// Of a picture, for a botnet50.
  MapSize picture = {224, 224};
  /// Channels of the first stage.
  std::int64_t width = 64;
  std::int64_t classes = 10;
  /// Norms over the batches of all ranks of this group.
  std::optional<sinew::ProcessGroup> norms_over;
  Activations activations = Activations::kKept;
};

/// ResNet (He et al., "Deep Residual Learning for Image Recognition", 2015): four stages of blocks,
/// with parameters of the names that torchvision gives them. A BotNet-50 is a ResNet-50 whose last
/// stage has self-attention, and no stride. It can be cloned, as data_parallel() wants it.
class ResNet : public torch::nn::Cloneable<ResNet> {
 public:
  /// Throws std::invalid_argument for a model that there is not.
  explicit ResNet(const ResNetOptions& options);
  /// Makes all layers, with new parameters.
  void reset() override;
  /// {count, channels, height, width} to {count, classes} scores.
  at::Tensor forward(const at::Tensor& pictures);

 private:
  struct Plan;

  torch::nn::ModuleList make_stage(const Plan& plan, int stage, std::int64_t& in);

  // Not const: a clone is assigned to.
  ResNetOptions options_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::AnyModule bn1_;
  std::vector<torch::nn::ModuleList> stages_;
  torch::nn::Linear fc_{nullptr};
};

}  // namespace image_classifier
