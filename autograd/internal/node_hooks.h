#pragma once

#include <torch/csrc/autograd/function.h>

namespace sinew::internal {

// The hooks of nodes, which differ between the versions of LibTorch: since 2.0 those of tensors are
// kept apart from those of nodes.

/// Hooks of the tensors that `node` made (since 2.0; before, they are among the pre-hooks).
torch::autograd::variable_list run_tensor_hooks(torch::autograd::Node& node,
                                                torch::autograd::variable_list gradients);
torch::autograd::variable_list run_pre_hooks(torch::autograd::Node& node,
                                             torch::autograd::variable_list gradients);
torch::autograd::variable_list run_post_hooks(torch::autograd::Node& node,
                                              torch::autograd::variable_list outputs,
                                              const torch::autograd::variable_list& inputs);

/// Who has taken the gradients of a node that does not run itself.
enum class CapturedBy { kEngine, kUs };
/// What has to run before the gradients of a leaf or a received tensor are used.
torch::autograd::variable_list run_captured_hooks(torch::autograd::Node& node,
                                                  torch::autograd::variable_list gradients,
                                                  CapturedBy by);

}  // namespace sinew::internal
