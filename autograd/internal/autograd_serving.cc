// What other workers ask of this one's autograd layer: their calls, read and answered.

#include <utility>

#include "sinew/autograd.pb.h"
#include "sinew/autograd/internal/authority.h"
#include "sinew/autograd/internal/autograd_manager.h"
#include "sinew/autograd/internal/pass_messages.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/wire/bytes.h"

namespace sinew::internal {
namespace {

std::vector<EdgeGradients> read_arguments(Invocation& call, const RepeatedGradients& messages) {
  std::size_t expected = 1;
  for (const auto& message : messages) {
    expected += static_cast<std::size_t>(message.indexes_size());
  }
  call.check_argument_count(expected);
  std::size_t next = 1;
  return read_gradients(messages, [&] { return call.argument(next++); });
}

/// Answers a call that asked this worker to take part, or brought gradients.
BackwardPass::OnAnswer answer_to(const std::shared_ptr<Invocation>& call) {
  return [call](const std::exception_ptr& error, const PartAnswer& answer) {
    call->guard([&] {
      if (error != nullptr) std::rethrow_exception(error);
      proto::AutogradRunReply reply;
      write_edges(answer.gradients, *reply.mutable_gradients());
      reply.set_waits(answer.waits);
      std::size_t size = 1;
      for (const EdgeGradients& one : answer.gradients) size += one.gradients.size();
      {
        ValueWriter writer = call->result();
        ListWriter list = writer.list(size);
        list.next().binary(reply.SerializeAsString());
        for (const EdgeGradients& one : answer.gradients) {
          for (std::size_t i = 0; i < one.gradients.size(); ++i) {
            list.next().tensor_to(one.gradients[i], one.targets.at(i));
          }
        }
      }
      call->finish();
    });
  };
}

void serve_run(const std::shared_ptr<Invocation>& call) {
  if (call->argument_count() == 0) call->check_argument_count(1);
  auto run = parse_message<proto::AutogradRun>(call->argument(0));
  auto gradients = read_arguments(*call, run.gradients());
  call->when_ready([call, run = std::move(run), gradients = std::move(gradients)]() mutable {
    AutogradManager::of(call->services())
        ->on_run(call->caller(), run, std::move(gradients), call->deadline(), call->cancellation(),
                 answer_to(call));
  });
}

void serve_gradients(const std::shared_ptr<Invocation>& call) {
  if (call->argument_count() == 0) call->check_argument_count(1);
  auto delivery = parse_message<proto::AutogradDelivery>(call->argument(0));
  auto gradients = read_arguments(*call, delivery.gradients());
  call->when_ready(
      [call, delivery = std::move(delivery), gradients = std::move(gradients)]() mutable {
        AutogradManager::of(call->services())
            ->on_gradients(call->caller(), delivery, std::move(gradients), answer_to(call));
      });
}

void serve_facts(const std::shared_ptr<Invocation>& call) {
  call->check_argument_count(1);
  const auto request = parse_message<proto::AutogradFactsRequest>(call->argument(0));
  call->when_ready([call, request] {
    call->result().binary(AutogradManager::of(call->services())->on_facts(call->caller(), request));
    call->finish();
  });
}

void serve_backward(const std::shared_ptr<Invocation>& call) {
  call->check_argument_count(1);
  const auto request = parse_message<proto::AutogradBackward>(call->argument(0));
  call->when_ready([call, request] {
    const auto* root = static_cast<const at::Tensor*>(call->target(typeid(at::Tensor)));
    const auto manager = AutogradManager::of(call->services());
    if (absl::Status member = check_member(call->caller()); !member.ok()) throw_error(member);
    PassOptions options;
    options.graph =
        request.retain_graph() ? LocalBackward::Graph::kRetain : LocalBackward::Graph::kRelease;
    options.deadline = call->deadline();
    options.runner = call->services().executor()->runner();
    manager->backward_async(manager->find(read_context(request.context())), {*root}, options)
        .on_done([call](const Future<void>& done) {
          call->guard([&] {
            done.value();
            call->finish();
          });
        });
  });
}

}  // namespace

std::vector<Extension::Method> AutogradManager::methods() const {
  return {{kRunMethod, &serve_run},
          {kGradientsMethod, &serve_gradients},
          {kFactsMethod, &serve_facts},
          {kBackwardMethod, &serve_backward}};
}

}  // namespace sinew::internal
