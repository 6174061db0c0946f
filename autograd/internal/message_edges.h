#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <torch/csrc/autograd/function.h>

#include "sinew/autograd/internal/context_state.h"
#include "sinew/autograd/internal/context_work.h"
#include "sinew/autograd/internal/recv_node.h"
#include "sinew/rpc/wire/message_context.h"

namespace sinew::internal {

/// The tensors of one message that is written inside a context.
class OutgoingEdges final : public TensorHook {
 public:
  enum class Recording { kOn, kOff };
  OutgoingEdges(std::shared_ptr<ContextState> context, WorkerInfo receiver, MessageName name,
                Recording recording)
      : context_(std::move(context)),
        receiver_(std::move(receiver)),
        name_(name),
        recording_(recording) {}

  const std::shared_ptr<ContextState>& context() const { return context_; }
  const WorkerInfo& receiver() const { return receiver_; }
  const MessageName& name() const { return name_; }
  /// Off: the caller computes no gradients.
  Recording recording() const { return recording_; }
  /// Where the gradients of the tensors enter this worker's graph, by number of the edge.
  torch::autograd::edge_list take_edges() { return std::move(edges_); }

  std::optional<std::uint32_t> on_write(const at::Tensor& tensor) override;
  void on_read(const at::Tensor&, std::uint32_t, c10::Device) override {}

 private:
  const std::shared_ptr<ContextState> context_;
  const WorkerInfo receiver_;
  const MessageName name_;
  const Recording recording_;
  torch::autograd::edge_list edges_;
};

/// A message that is written in a context which this worker has lost, while others may work in it:
/// no gradient would come back along it, without any error.
class LostEdges final : public TensorHook {
 public:
  LostEdges(const autograd::ContextId& context, std::string worker)
      : context_(context), worker_(std::move(worker)) {}

  /// Throws RpcError kAborted, unless no gradients are wanted.
  std::optional<std::uint32_t> on_write(const at::Tensor& tensor) override;
  void on_read(const at::Tensor&, std::uint32_t, c10::Device) override {}

 private:
  const autograd::ContextId context_;
  const std::string worker_;
};

/// The tensors of one message that came inside a context.
class IncomingEdges final : public TensorHook {
 public:
  IncomingEdges(std::shared_ptr<ContextState> context, WorkerInfo sender, std::uint64_t message,
                const CallName& call)
      : context_(std::move(context)), sender_(std::move(sender)), message_(message), call_(call) {}

  /// The call that has arrived; empty for a reply.
  const CallName& call() const { return call_; }

  std::optional<std::uint32_t> on_write(const at::Tensor&) override { return std::nullopt; }
  void on_read(const at::Tensor& tensor, std::uint32_t edge, c10::Device origin) override;

 private:
  const std::shared_ptr<ContextState> context_;
  const WorkerInfo sender_;
  const std::uint64_t message_;
  const CallName call_;
  // Made with the first tensor.
  std::shared_ptr<RecvNode> node_;
};

}  // namespace sinew::internal
