#pragma once

#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/groups/internal/group_engine.h"
#include "sinew/groups/reduce_op.h"

namespace sinew::internal {

// The operations of a group, as its engine takes them: checks what can be checked here, and makes
// tensors fit what backends take. Throw RpcError: kInvalidArgument for tensors or ranks that make
// no sense (the text names them), kUnimplemented for what no backend of the group has.
//
// `tensor`s that are written to may be views of any shape: where their memory is not contiguous, a
// copy is used and its values are written back.

Operation make_send(const GroupEngine& group, const at::Tensor& tensor, int to, int tag);
Operation make_recv(const GroupEngine& group, const at::Tensor& tensor, std::optional<int> from,
                    int tag);
Operation make_broadcast(const GroupEngine& group, const at::Tensor& tensor, int root);
Operation make_all_reduce(const GroupEngine& group, const at::Tensor& tensor, ReduceOp op);
Operation make_reduce(const GroupEngine& group, const at::Tensor& tensor, int root, ReduceOp op);
Operation make_scatter(const GroupEngine& group, const at::Tensor& output,
                       const std::vector<at::Tensor>& inputs, int root);
Operation make_gather(const GroupEngine& group, const std::vector<at::Tensor>& outputs,
                      const at::Tensor& input, int root);
Operation make_all_gather(const GroupEngine& group, const std::vector<at::Tensor>& outputs,
                          const at::Tensor& input);
Operation make_reduce_scatter(const GroupEngine& group, const at::Tensor& output,
                              const std::vector<at::Tensor>& inputs, ReduceOp op);
Operation make_all_to_all(const GroupEngine& group, const std::vector<at::Tensor>& outputs,
                          const std::vector<at::Tensor>& inputs);
Operation make_barrier(const GroupEngine& group);

}  // namespace sinew::internal
