#include "sinew/autograd/split_linear.h"

#include <cstdint>
#include <vector>

#include <torch/csrc/autograd/custom_function.h>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/zeros.h"
#include "c10/util/Optional.h"

namespace sinew::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// A function's arguments may be missing, not undefined.
using OptionalTensor = c10::optional<at::Tensor>;

// Arguments that are pointers have no part in the graph: each way ends at its own tensors. The
// other ones are saved as they are, so that gradients of gradients find them.

/// The way back to the weight and the bias. What it returns has the shape of the output, and no
/// memory.
struct WeightWay : Function<WeightWay> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor* rows,
                            const at::Tensor& weight, const OptionalTensor& bias) {
    context->save_for_backward({*rows});
    context->saved_data["bias"] = bias.has_value();
    return at::zeros({}, weight.options()).expand({rows->size(0), weight.size(0)});
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor& gradient = gradients.at(0);
    const at::Tensor rows = context->get_saved_variables().at(0);
    const bool bias = context->saved_data["bias"].toBool();
    return {{}, gradient.t().mm(rows), bias ? gradient.sum(0) : at::Tensor()};
  }
};

/// The way back to the input.
struct InputWay : Function<InputWay> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor* weight, const at::Tensor* bias) {
    context->save_for_backward({*weight});
    return at::linear(rows, *weight, *bias);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients.at(0).mm(context->get_saved_variables().at(0)), {}, {}};
  }
};

struct BothWays : Function<BothWays> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& output,
                            const at::Tensor& /*stands for it on the other way*/) {
    context->mark_dirty({output});
    return output;
  }
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    return {gradients.at(0), gradients.at(0)};
  }
};

}  // namespace

at::Tensor split_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  const bool trained = weight.requires_grad() || (bias.defined() && bias.requires_grad());
  if (!at::GradMode::is_enabled() || !trained || !input.requires_grad()) {
    return at::linear(input, weight, bias);
  }
  // at::linear views its result where it has flattened its input. A function may return no view.
  const at::Tensor rows = input.dim() == 1 ? input.unsqueeze(0) : input.flatten(0, -2);
  const at::Tensor one_way = InputWay::apply(rows, &weight, &bias);
  const at::Tensor other_way =
      WeightWay::apply(&rows, weight, bias.defined() ? OptionalTensor(bias) : c10::nullopt);
  std::vector<std::int64_t> shape = input.sizes().vec();
  shape.back() = one_way.size(1);
  return BothWays::apply(one_way, other_way).view(shape);
}

}  // namespace sinew::autograd
