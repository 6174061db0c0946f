#include "sinew/autograd/internal/recv_node.h"

#include <algorithm>
#include <utility>

#include <torch/csrc/autograd/variable.h>

#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

// As many tensors as a message may have.
constexpr std::uint32_t kMaxEdges = 65536;

}  // namespace

std::shared_ptr<RecvNode> RecvNode::make(autograd::ContextId context, WorkerInfo sender,
                                         std::uint64_t message) {
  // deleteNode: long chains of nodes are not destroyed recursively.
  return std::shared_ptr<RecvNode>(new RecvNode(context, std::move(sender), message),
                                   torch::autograd::deleteNode);
}

RecvNode::RecvNode(autograd::ContextId context, WorkerInfo sender, std::uint64_t message)
    : context_(context), sender_(std::move(sender)), message_(message) {}

void RecvNode::attach(const at::Tensor& tensor, std::uint32_t index, c10::Device origin) {
  const bool taken = index < attached_.size() && attached_[index];
  if (index >= kMaxEdges || taken) {
    throw RpcError(
        ErrorCode::kInvalidArgument,
        absl::StrFormat("tensor with edge %d of message %d from worker '%s': %s", index, message_,
                        sender_.name, taken ? "there are two" : "the number is too large"));
  }
  if (index < num_inputs()) {
    replace_metadata(tensor, index);
  } else {
    while (num_inputs() < index) add_input_metadata(undefined_input());
    add_input_metadata(tensor);
  }
  attached_.resize(std::max<std::size_t>(attached_.size(), index + 1));
  attached_[index] = true;
  origins_.resize(attached_.size(), c10::kCPU);
  origins_[index] = origin;
  tensor.set_requires_grad(false);
  torch::autograd::impl::set_gradient_edge(tensor, {shared_from_this(), index});
}

// What is known of an input cannot be assigned to, only appended. Rare: codecs mostly read in the
// order in which they write.
void RecvNode::replace_metadata(const at::Tensor& tensor, std::uint32_t index) {
  const std::vector<torch::autograd::InputMetadata> known(input_metadata_.begin(),
                                                          input_metadata_.end());
  clear_input_metadata();
  for (std::uint32_t i = 0; i < known.size(); ++i) {
    if (i == index) {
      add_input_metadata(tensor);
    } else {
      input_metadata_.emplace_back(known[i]);
    }
  }
}

torch::autograd::variable_list RecvNode::apply(torch::autograd::variable_list&&) {
  throw RpcError(
      ErrorCode::kFailedPrecondition,
      absl::StrFormat("the gradient of a tensor that came from worker '%s' was asked for "
                      "with a local backward(): use sinew::autograd::backward() with its "
                      "context",
                      sender_.name));
}

}  // namespace sinew::internal
