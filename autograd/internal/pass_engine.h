#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

namespace sinew::internal {

/// LibTorch's engine, for the nodes of a context's backward pass. While they run, a backward() of
/// LibTorch's that one of them calls (checkpointing by hand) throws RpcError kFailedPrecondition:
/// what it brings to leaves would be in `.grad`, and missing in the context.
/// torch::autograd::grad() works. Nodes on other devices than the CPU run on threads of the engine,
/// and are not watched.
torch::autograd::variable_list run_in_pass(const torch::autograd::edge_list& roots,
                                           const torch::autograd::variable_list& inputs,
                                           bool keep_graph, bool accumulate,
                                           const torch::autograd::edge_list& outputs = {});

}  // namespace sinew::internal
