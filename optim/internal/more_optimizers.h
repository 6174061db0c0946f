#pragma once

#include <torch/optim/optimizer.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "sinew/optim/options.h"

// Optimizers that PyTorch has and LibTorch's C++ frontend does not.
namespace sinew::internal {

/// Options of ours as LibTorch wants to have them.
template <class T>
class PlainOptions final : public torch::optim::OptimizerCloneableOptions<PlainOptions<T>> {
 public:
  explicit PlainOptions(T fields) : fields_(std::move(fields)) {}
  const T& fields() const { return fields_; }
  double get_lr() const override { return fields_.lr; }
  void set_lr(double lr) override { fields_.lr = lr; }

 private:
  T fields_;
};

/// What an optimizer remembers of one parameter, by name. Undefined until its first step.
using ParameterState = std::map<std::string, at::Tensor>;

/// One step of one parameter, as PyTorch's optimizer of that name does it.
void update(const optim::AdadeltaOptions& options, at::Tensor& parameter,
            const at::Tensor& gradient, ParameterState& state);
void update(const optim::AdamaxOptions& options, at::Tensor& parameter, const at::Tensor& gradient,
            ParameterState& state);
void update(const optim::RpropOptions& options, at::Tensor& parameter, const at::Tensor& gradient,
            ParameterState& state);

void save_states(torch::serialize::OutputArchive& archive,
                 const std::vector<ParameterState>& states);
/// Throws c10::Error when the archive has not as many.
void load_states(torch::serialize::InputArchive& archive, std::vector<ParameterState>& states);

/// An optimizer that can say how much it keeps.
class StatefulOptimizer : public torch::optim::Optimizer {
 public:
  using Optimizer::Optimizer;
  std::size_t state_bytes() const {
    std::size_t bytes = 0;
    for (const ParameterState& state : states_) {
      for (const auto& [name, tensor] : state) bytes += tensor.nbytes();
    }
    return bytes;
  }

 protected:
  // In the order of the parameters.
  std::vector<ParameterState> states_;
};

template <class T>
class PlainOptimizer final : public StatefulOptimizer {
 public:
  PlainOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups, PlainOptions<T> defaults)
      : StatefulOptimizer(std::move(groups),
                          std::make_unique<PlainOptions<T>>(std::move(defaults))) {
    std::size_t count = 0;
    for (const auto& group : param_groups_) count += group.params().size();
    states_.resize(count);
  }

  at::Tensor step(LossClosure) override {
    const at::AutoGradMode no_grad(false);
    std::size_t index = 0;
    for (auto& group : param_groups_) {
      const T& fields = static_cast<const PlainOptions<T>&>(group.options()).fields();
      for (at::Tensor& parameter : group.params()) {
        ParameterState& state = states_[index++];
        if (parameter.grad().defined()) update(fields, parameter, parameter.grad(), state);
      }
    }
    return {};
  }

  void save(torch::serialize::OutputArchive& archive) const override {
    save_states(archive, states_);
  }
  void load(torch::serialize::InputArchive& archive) override { load_states(archive, states_); }
};

}  // namespace sinew::internal
