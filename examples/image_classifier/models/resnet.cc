#include "resnet.h"

#include <array>
#include <memory>
#include <stdexcept>

#include "ATen/ATen.h"
#include "residual_blocks.h"
#include "sinew/parallel/checkpoint.h"

namespace image_classifier {

struct ResNet::Plan {
  enum class Blocks { kBasic, kBottleneck };

  std::string name;
  Blocks blocks = Blocks::kBasic;
  std::array<int, 4> counts = {2, 2, 2, 2};
  bool attends = false;

  static const std::vector<Plan>& all() {
    static const std::vector<Plan> plans = {
        {"resnet18", Blocks::kBasic, {2, 2, 2, 2}},
        {"resnet34", Blocks::kBasic, {3, 4, 6, 3}},
        {"resnet50", Blocks::kBottleneck, {3, 4, 6, 3}},
        {"resnet101", Blocks::kBottleneck, {3, 4, 23, 3}},
        {"resnet152", Blocks::kBottleneck, {3, 8, 36, 3}},
        {"botnet50", Blocks::kBottleneck, {3, 4, 6, 3}, true},
    };
    return plans;
  }

  static const Plan& of(const std::string& name) {
    for (const Plan& plan : all()) {
      if (plan.name == name) return plan;
    }
    throw std::invalid_argument("there is no model '" + name + "'");
  }
};

namespace {

constexpr int kStages = 4;

/// Of what the last stage of a botnet50 sees: the stem of the paper and two stages halve the sides.
MapSize map_of(const ResNetOptions& options) {
  MapSize map = options.picture;
  const int halvings = options.stem == Stem::kImageNet ? 4 : 2;
  for (int i = 0; i < halvings; ++i) map = {(map.height + 1) / 2, (map.width + 1) / 2};
  return map;
}

}  // namespace

ResNet::ResNet(const ResNetOptions& options) : options_(options) { ResNet::reset(); }

torch::nn::ModuleList ResNet::make_stage(const Plan& plan, int stage, std::int64_t& in) {
  const Norms norms(options_.norms_over);
  const bool attends = plan.attends && stage == kStages - 1;
  BlockShape shape;
  shape.planes = options_.width << stage;
  torch::nn::ModuleList blocks;
  for (int i = 0; i < plan.counts[static_cast<std::size_t>(stage)]; ++i) {
    shape.in = in;
    shape.stride = stage > 0 && i == 0 && !attends ? 2 : 1;
    if (attends) {
      blocks->push_back(std::make_shared<AttentionBlock>(shape, map_of(options_), norms));
    } else if (plan.blocks == Plan::Blocks::kBottleneck) {
      blocks->push_back(std::make_shared<Bottleneck>(shape, norms));
    } else {
      blocks->push_back(std::make_shared<BasicBlock>(shape, norms));
    }
    in = shape.planes * (plan.blocks == Plan::Blocks::kBottleneck ? Bottleneck::kExpansion
                                                                  : BasicBlock::kExpansion);
  }
  return blocks;
}

void ResNet::reset() {
  const Plan& plan = Plan::of(options_.model);
  const bool shrinks = options_.stem == Stem::kImageNet;
  conv1_ = register_module(
      "conv1", convolution(options_.channels, options_.width, shrinks ? 7 : 3, shrinks ? 2 : 1));
  bn1_ = Norms(options_.norms_over).make(options_.width);
  register_module("bn1", bn1_.ptr());
  std::int64_t in = options_.width;
  stages_.clear();
  for (int stage = 0; stage < kStages; ++stage) {
    stages_.push_back(
        register_module("layer" + std::to_string(stage + 1), make_stage(plan, stage, in)));
  }
  fc_ = register_module("fc", torch::nn::Linear(in, options_.classes));
}

at::Tensor ResNet::forward(const at::Tensor& pictures) {
  at::Tensor x = bn1_.forward(conv1_->forward(pictures)).relu_();
  if (options_.stem == Stem::kImageNet) x = at::max_pool2d(x, 3, 2, 1);
  for (torch::nn::ModuleList& stage : stages_) {
    for (std::size_t i = 0; i < stage->size(); ++i) {
      const auto block = stage->ptr<Block>(i);
      x = options_.activations == Activations::kComputedAgain
              ? sinew::parallel::checkpoint(block, x)
              : block->forward(x);
    }
  }
  x = at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
  return fc_->forward(x);
}

}  // namespace image_classifier
