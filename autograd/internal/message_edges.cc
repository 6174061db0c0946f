#include "sinew/autograd/internal/message_edges.h"

#include <torch/csrc/autograd/variable.h>

#include "ATen/core/grad_mode.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

std::optional<std::uint32_t> OutgoingEdges::on_write(const at::Tensor& tensor) {
  if (recording_ == Recording::kOff) return std::nullopt;
  edges_.push_back(torch::autograd::impl::gradient_edge(tensor));
  return static_cast<std::uint32_t>(edges_.size() - 1);
}

std::optional<std::uint32_t> LostEdges::on_write(const at::Tensor&) {
  if (!at::GradMode::is_enabled()) return std::nullopt;
  throw RpcError(ErrorCode::kAborted,
                 absl::StrFormat("a result requires a gradient, which could not come back: worker "
                                 "'%s' takes the creator of autograd context %s for lost",
                                 worker_, autograd::to_string(context_)));
}

void IncomingEdges::on_read(const at::Tensor& tensor, std::uint32_t edge, c10::Device origin) {
  if (message_ == 0 || context_->released()) return;
  if (node_ == nullptr) {
    node_ = RecvNode::make(context_->id(), sender_, message_);
    context_->record_recv(node_);
  }
  node_->attach(tensor, edge, origin);
}

}  // namespace sinew::internal
