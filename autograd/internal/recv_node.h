#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/autograd/function.h>

#include "c10/core/Device.h"
#include "sinew/autograd/context_id.h"
#include "sinew/autograd/internal/edge_id.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

/// Where the graph of this worker ends because a tensor came from another one: the grad_fn of all
/// tensors of one message that came along edges. Input i belongs to the edge with number i.
/// A backward pass of the context reads what arrives here and sends it to the sender.
class RecvNode final : public torch::autograd::Node {
 public:
  static std::shared_ptr<RecvNode> make(autograd::ContextId context, WorkerInfo sender,
                                        std::uint64_t message);

  const autograd::ContextId& context() const { return context_; }
  const WorkerInfo& sender() const { return sender_; }
  std::uint64_t message() const { return message_; }
  EdgeId edge(std::uint32_t index) const { return {sender_.incarnation, message_, index}; }

  /// Where the gradient of a tensor is to be at the sender: where the tensor is.
  c10::Device origin(std::uint32_t index) const { return origins_.at(index); }

  /// Makes `tensor`, a leaf, the output of this node with number `index`. Throws RpcError
  /// kInvalidArgument for a number that has been used or is out of bounds. Not thread-safe.
  void attach(const at::Tensor& tensor, std::uint32_t index, c10::Device origin = c10::kCPU);

  std::string name() const override { return "SinewRecv"; }

 private:
  RecvNode(autograd::ContextId context, WorkerInfo sender, std::uint64_t message);
  void replace_metadata(const at::Tensor& tensor, std::uint32_t index);
  /// Runs only in a backward that knows nothing of other workers: throws.
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

  const autograd::ContextId context_;
  const WorkerInfo sender_;
  const std::uint64_t message_;
  std::vector<bool> attached_;
  std::vector<c10::Device> origins_;
};

}  // namespace sinew::internal
