#include "sinew/autograd/internal/node_hooks.h"

#include <utility>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

namespace sinew::internal {

using torch::autograd::Node;
using torch::autograd::variable_list;

variable_list run_tensor_hooks(Node& node, variable_list gradients) {
#if TORCH_VERSION_MAJOR >= 2
  for (const auto& hook : node.tensor_pre_hooks()) gradients = (*hook)(gradients);
  for (const auto& [output, hook] : node.retains_grad_hooks()) gradients = (*hook)(gradients);
#else
  if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node)) {
    for (const auto& hook : torch::autograd::impl::hooks(leaf->variable)) {
      gradients = (*hook)(gradients);
    }
  }
#endif
  return gradients;
}

variable_list run_pre_hooks(Node& node, variable_list gradients) {
  for (const auto& hook : node.pre_hooks()) gradients = (*hook)(gradients);
  return gradients;
}

variable_list run_post_hooks(Node& node, variable_list outputs, const variable_list& inputs) {
  for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, inputs);
  return outputs;
}

variable_list run_captured_hooks(Node& node, variable_list gradients, CapturedBy by) {
#if TORCH_VERSION_MAJOR >= 2
  // The engine runs these itself before it captures.
  if (by == CapturedBy::kUs) gradients = run_tensor_hooks(node, std::move(gradients));
#else
  (void)by;
  gradients = run_tensor_hooks(node, std::move(gradients));
#endif
  return run_pre_hooks(node, std::move(gradients));
}

}  // namespace sinew::internal
