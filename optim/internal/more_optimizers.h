#pragma once

#include "sinew/optim/options.h"
#include "sinew/optim/per_parameter_optimizer.h"

// Optimizers that PyTorch has and LibTorch's C++ frontend does not.
namespace sinew::internal {

class Adadelta final : public optim::PerParameterOptimizer<optim::AdadeltaOptions> {
 public:
  using PerParameterOptimizer::PerParameterOptimizer;
  static void check(const optim::AdadeltaOptions& options);

 private:
  void update(const optim::AdadeltaOptions& options, at::Tensor& parameter,
              const at::Tensor& gradient, optim::ParameterState& state) override;
};

class Adamax final : public optim::PerParameterOptimizer<optim::AdamaxOptions> {
 public:
  using PerParameterOptimizer::PerParameterOptimizer;
  static void check(const optim::AdamaxOptions& options);

 private:
  void update(const optim::AdamaxOptions& options, at::Tensor& parameter,
              const at::Tensor& gradient, optim::ParameterState& state) override;
};

class Rprop final : public optim::PerParameterOptimizer<optim::RpropOptions> {
 public:
  using PerParameterOptimizer::PerParameterOptimizer;
  static void check(const optim::RpropOptions& options);

 private:
  void update(const optim::RpropOptions& options, at::Tensor& parameter, const at::Tensor& gradient,
              optim::ParameterState& state) override;
};

}  // namespace sinew::internal
