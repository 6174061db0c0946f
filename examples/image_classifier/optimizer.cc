#include "optimizer.h"

#include <utility>

#include "sinew/examples/common/archives.h"
#include "sinew/optim/options.h"
#include "sinew/parallel/zero_redundancy_optimizer.h"
#include "torch/optim/sgd.h"

namespace image_classifier {
namespace {

class WholeSgd final : public Sgd {
 public:
  WholeSgd(std::vector<at::Tensor> parameters, const SgdSettings& settings)
      : optimizer_(std::move(parameters), torch::optim::SGDOptions(settings.lr)
                                              .momentum(settings.momentum)
                                              .weight_decay(settings.weight_decay)
                                              .nesterov(settings.momentum > 0)) {}

  void zero_grad() override { optimizer_.zero_grad(); }
  void step() override { optimizer_.step(); }
  void set_rate(double lr) override {
    for (auto& group : optimizer_.param_groups()) group.options().set_lr(lr);
  }
  std::string save() override {
    torch::serialize::OutputArchive archive;
    optimizer_.save(archive);
    return examples::to_bytes(archive);
  }
  void load(const std::string& state) override {
    torch::serialize::InputArchive archive;
    archive.load_from(state.data(), state.size());
    optimizer_.load(archive);
  }
  std::size_t state_bytes() const override {
    std::size_t bytes = 0;
    for (const auto& [key, state] : optimizer_.state()) {
      const auto& of_one = static_cast<const torch::optim::SGDParamState&>(*state);
      if (of_one.momentum_buffer().defined()) bytes += of_one.momentum_buffer().nbytes();
    }
    return bytes;
  }

 private:
  torch::optim::SGD optimizer_;
};

class SpreadSgd final : public Sgd {
 public:
  SpreadSgd(std::vector<at::Tensor> parameters, const SgdSettings& settings,
            const sinew::ProcessGroup& group)
      : optimizer_(group, std::move(parameters), options_of(settings)) {}

  void zero_grad() override { optimizer_.zero_grad(); }
  void step() override { optimizer_.step(); }
  void set_rate(double lr) override { optimizer_.set_learning_rate(lr); }
  std::string save() override { return optimizer_.save(0); }
  void load(const std::string& state) override { optimizer_.load(state); }
  std::size_t state_bytes() const override { return optimizer_.state_bytes(); }

 private:
  static sinew::optim::SgdOptions options_of(const SgdSettings& settings) {
    sinew::optim::SgdOptions options;
    options.lr = settings.lr;
    options.momentum = settings.momentum;
    options.weight_decay = settings.weight_decay;
    options.nesterov = settings.momentum > 0;
    return options;
  }

  sinew::parallel::ZeroRedundancyOptimizer optimizer_;
};

}  // namespace

std::unique_ptr<Sgd> make_sgd(std::vector<at::Tensor> parameters, const SgdSettings& settings,
                              const std::optional<sinew::ProcessGroup>& spread_over) {
  if (spread_over) {
    return std::make_unique<SpreadSgd>(std::move(parameters), settings, *spread_over);
  }
  return std::make_unique<WholeSgd>(std::move(parameters), settings);
}

}  // namespace image_classifier
