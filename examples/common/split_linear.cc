#include "sinew/examples/common/split_linear.h"

#include <cstdint>
#include <vector>

#include <torch/autograd.h>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/zeros.h"
#include "c10/util/Optional.h"

namespace examples {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// A function's arguments may be missing, not undefined.
using OptionalTensor = c10::optional<at::Tensor>;

/// A factor as the gradient of a product needs it. Autocast computes in other types than it is
/// given.
at::Tensor like(const at::Tensor& gradient, const at::Tensor& factor) {
  return factor.conj().to(gradient.scalar_type());
}

// Arguments that are pointers have no part in the graph: each way ends at its own tensors. The
// other ones are saved as they are, so that gradients of gradients find them.

/// The way back to the weight and the bias. What it returns has the shape of the output, and no
/// memory.
struct WeightWay : Function<WeightWay> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor* rows,
                            const at::Tensor& weight, const OptionalTensor& bias) {
    context->set_materialize_grads(false);
    context->save_for_backward({*rows});
    context->saved_data["weight"] = weight.requires_grad();
    context->saved_data["bias"] = bias.has_value() && bias->requires_grad();
    return at::zeros({}, weight.options()).expand({rows->size(0), weight.size(0)});
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor& gradient = gradients.at(0);
    variable_list results(3);
    if (!gradient.defined()) return results;
    if (context->saved_data["weight"].toBool()) {
      const at::Tensor rows = context->get_saved_variables().at(0);
      results[1] = gradient.t().mm(like(gradient, rows));
    }
    if (context->saved_data["bias"].toBool()) results[2] = gradient.sum(0);
    return results;
  }
};

/// The way back to the input.
struct InputWay : Function<InputWay> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor* weight, const at::Tensor* bias) {
    context->set_materialize_grads(false);
    context->save_for_backward({*weight});
    return at::linear(rows, *weight, *bias);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor& gradient = gradients.at(0);
    variable_list results(3);
    if (!gradient.defined()) return results;
    const at::Tensor weight = context->get_saved_variables().at(0);
    results[0] = gradient.mm(like(gradient, weight));
    return results;
  }
};

struct BothWays : Function<BothWays> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& output,
                            const at::Tensor& /*stands for it on the other way*/) {
    context->set_materialize_grads(false);
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
  // A weight of one dimension is a product of another kind.
  if (!at::GradMode::is_enabled() || !trained || !input.requires_grad() || weight.dim() != 2) {
    return at::linear(input, weight, bias);
  }
  // at::linear views its result where it has flattened its input. A function may return no view.
  const at::Tensor rows = input.dim() == 1 ? input.unsqueeze(0) : input.flatten(0, -2);
  // In this order: the engine begins with what was recorded last.
  const at::Tensor other_way =
      WeightWay::apply(&rows, weight, bias.defined() ? OptionalTensor(bias) : c10::nullopt);
  const at::Tensor one_way = InputWay::apply(rows, &weight, &bias);
  std::vector<std::int64_t> shape = input.sizes().vec();
  shape.back() = one_way.size(1);
  return BothWays::apply(one_way, other_way).view(shape);
}

}  // namespace examples
