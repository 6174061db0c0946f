#pragma once

#include <torch/optim/optimizer.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "sinew/optim/internal/stateful_optimizer.h"

namespace sinew::optim {

/// What Sinew asks an optimizer's class of its options, as most classes answer it. A class derives
/// from it and hides what is otherwise.
template <class Fields>
struct OptimizerRules {
  /// Throws RpcError kInvalidArgument when they make no sense, e.g. with sinew::Rejected. The
  /// learning rate has been checked before: it is finite, and not negative.
  static void check(const Fields&) {}
  /// The same when an optimizer that was made with `now` cannot go on with `next`.
  static void check_change(const Fields& /*now*/, const Fields& /*next*/) {}
  /// Whether gradients may be sparse, as those of embeddings made with `sparse`.
  static bool takes_sparse_gradients(const Fields&) { return false; }
};

/// A struct of options as LibTorch wants to have them.
template <class Fields>
class FieldOptions final : public torch::optim::OptimizerCloneableOptions<FieldOptions<Fields>> {
 public:
  explicit FieldOptions(Fields fields) : fields_(std::move(fields)) {}
  const Fields& fields() const { return fields_; }
  double get_lr() const override { return fields_.lr; }
  void set_lr(double lr) override { fields_.lr = lr; }

 private:
  Fields fields_;
};

/// An optimizer that steps each parameter by itself. Its state is tensors, by name for each
/// parameter, which it saves and loads. See sinew/optim/optimizer.h for an example.
template <class Fields>
class PerParameterOptimizer : public sinew::internal::StatefulOptimizer,
                              public OptimizerRules<Fields> {
 public:
  PerParameterOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups,
                        FieldOptions<Fields> defaults)
      : StatefulOptimizer(std::move(groups),
                          std::make_unique<FieldOptions<Fields>>(std::move(defaults))) {}

  static FieldOptions<Fields> torch_options(const Fields& fields) {
    return FieldOptions<Fields>(fields);
  }

  at::Tensor step(LossClosure closure = nullptr) override {
    at::Tensor loss;
    if (closure != nullptr) {
      const at::AutoGradMode with_gradients(true);
      loss = closure();
    }
    const at::AutoGradMode no_grad(false);
    std::size_t index = 0;
    for (torch::optim::OptimizerParamGroup& group : param_groups_) {
      const Fields& fields = static_cast<const FieldOptions<Fields>&>(group.options()).fields();
      for (at::Tensor& parameter : group.params()) {
        ParameterState& state = states_[index++];
        if (parameter.grad().defined()) update(fields, parameter, parameter.grad(), state);
      }
    }
    return loss;
  }

 protected:
  /// One step of one parameter, in place. `state` is empty at its first; what is put there is there
  /// at the next, and in checkpoints. The gradient is not to be changed.
  virtual void update(const Fields& options, at::Tensor& parameter, const at::Tensor& gradient,
                      ParameterState& state) = 0;
};

}  // namespace sinew::optim
