#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sinew/optim/optimizer.h"

// Optimizers as users write them.
namespace testoptim {

struct LionOptions {
  double lr = 1e-4;
  std::tuple<double, double> betas = {0.9, 0.99};
  double weight_decay = 0;
};

/// "Symbolic Discovery of Optimization Algorithms", Chen et al., 2023.
class Lion final : public sinew::optim::PerParameterOptimizer<LionOptions> {
 public:
  using PerParameterOptimizer::PerParameterOptimizer;
  /// Refuses betas of 1 or more.
  static void check(const LionOptions& options);

 private:
  void update(const LionOptions& options, at::Tensor& parameter, const at::Tensor& gradient,
              sinew::optim::ParameterState& state) override;
};

struct HeavyBallOptions {
  double lr = 1e-2;
  double friction = 0.1;
};

/// Options in LibTorch's way.
struct TorchHeavyBallOptions : torch::optim::OptimizerCloneableOptions<TorchHeavyBallOptions> {
  TorchHeavyBallOptions(double rate, double loss) : lr(rate), friction(loss) {}
  double get_lr() const override { return lr; }
  void set_lr(double rate) override { lr = rate; }

  double lr;
  double friction;
};

/// An optimizer that was written for LibTorch: its state is of its own, and it takes sparse
/// gradients.
class HeavyBall final : public torch::optim::Optimizer,
                        public sinew::optim::OptimizerRules<HeavyBallOptions> {
 public:
  HeavyBall(std::vector<torch::optim::OptimizerParamGroup> groups, TorchHeavyBallOptions defaults);
  at::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  static TorchHeavyBallOptions torch_options(const HeavyBallOptions& options) {
    return {options.lr, options.friction};
  }
  static bool takes_sparse_gradients(const HeavyBallOptions&) { return true; }

 private:
  // By parameter.
  std::vector<at::Tensor> velocities_;
};

/// It keeps something, and has no save() and load().
struct ForgetfulOptions {
  double lr = 1e-2;
};
class Forgetful final : public torch::optim::Optimizer,
                        public sinew::optim::OptimizerRules<ForgetfulOptions> {
 public:
  Forgetful(std::vector<torch::optim::OptimizerParamGroup> groups,
            sinew::optim::FieldOptions<ForgetfulOptions> defaults);
  at::Tensor step(LossClosure closure = nullptr) override;

  static sinew::optim::FieldOptions<ForgetfulOptions> torch_options(
      const ForgetfulOptions& options) {
    return sinew::optim::FieldOptions<ForgetfulOptions>(options);
  }

 private:
  std::int64_t steps_ = 0;
};

/// It changes its gradients in place, as some do that were written for LibTorch.
struct DecayedOptions {
  double lr = 0.5;
  double weight_decay = 0.5;
};
class Decayed final : public torch::optim::Optimizer,
                      public sinew::optim::OptimizerRules<DecayedOptions> {
 public:
  Decayed(std::vector<torch::optim::OptimizerParamGroup> groups,
          sinew::optim::FieldOptions<DecayedOptions> defaults);
  at::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}

  static sinew::optim::FieldOptions<DecayedOptions> torch_options(const DecayedOptions& options) {
    return sinew::optim::FieldOptions<DecayedOptions>(options);
  }
};

/// Nobody serves it.
struct UnservedOptions {
  double lr = 1;
};
class Unserved final : public sinew::optim::PerParameterOptimizer<UnservedOptions> {
 public:
  using PerParameterOptimizer::PerParameterOptimizer;

 private:
  void update(const UnservedOptions&, at::Tensor&, const at::Tensor&,
              sinew::optim::ParameterState&) override {}
};

/// Serves those of them that are served.
void add_optimizers(sinew::MethodTable& methods);

}  // namespace testoptim

SINEW_STRUCT(testoptim::LionOptions, lr, betas, weight_decay);
SINEW_STRUCT(testoptim::HeavyBallOptions, lr, friction);
SINEW_STRUCT(testoptim::ForgetfulOptions, lr);
SINEW_STRUCT(testoptim::DecayedOptions, lr, weight_decay);
SINEW_STRUCT(testoptim::UnservedOptions, lr);
SINEW_OPTIMIZER(testoptim::Lion, testoptim::LionOptions);
SINEW_OPTIMIZER(testoptim::HeavyBall, testoptim::HeavyBallOptions);
SINEW_OPTIMIZER(testoptim::Forgetful, testoptim::ForgetfulOptions);
SINEW_OPTIMIZER(testoptim::Decayed, testoptim::DecayedOptions);
SINEW_OPTIMIZER(testoptim::Unserved, testoptim::UnservedOptions);
