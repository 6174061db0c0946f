#include "sinew/autograd/context.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/autograd.pb.h"
#include "sinew/autograd/internal/autograd_manager.h"
#include "sinew/autograd/internal/context_thread.h"
#include "sinew/autograd/internal/pass_messages.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/call_builder.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew {

using internal::AutogradManager;
using internal::ContextState;

namespace {

std::shared_ptr<AutogradManager> manager_of(const Worker& worker) {
  const auto services = WorkerAccess::services(worker);
  if (services == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "an autograd context was asked of an empty Worker: start one with "
                   "sinew::init_rpc()");
  }
  return AutogradManager::of(*services);
}

std::shared_ptr<ContextState> find(const Worker& worker, const autograd::ContextId& context) {
  return manager_of(worker)->find(context);
}

void check_no_context() {
  const auto current = autograd::Context::current_or_none();
  if (!current.has_value()) return;
  throw RpcError(
      ErrorCode::kFailedPrecondition,
      absl::StrFormat("this thread works in autograd context %s already: contexts do not "
                      "nest",
                      autograd::to_string(*current)));
}

std::chrono::nanoseconds timeout_of(const Worker& worker,
                                    const autograd::BackwardOptions& options) {
  const auto timeout = options.timeout.value_or(worker.default_timeout());
  if (timeout <= std::chrono::nanoseconds(0)) {
    throw RpcError(
        ErrorCode::kInvalidArgument,
        absl::StrFormat("the timeout of backward() must be positive, or kNoTimeout; this "
                        "one is %d ns",
                        timeout.count()));
  }
  return timeout;
}

}  // namespace

namespace autograd {

// ---- Scopes.

struct Context::Scope : internal::ContextThreadScope {
  using ContextThreadScope::ContextThreadScope;
};
struct ContextScope::Scope : internal::ContextThreadScope {
  using ContextThreadScope::ContextThreadScope;
};

Context::Context(const Worker& worker)
    : worker_(worker), state_([&] {
        check_no_context();
        return manager_of(worker)->create();
      }()) {
  scope_ = std::make_unique<Scope>(state_);
}

Context::~Context() {
  scope_ = nullptr;
  if (WorkerAccess::services(worker_)->process().is_orphan()) return;
  manager_of(worker_)->end(state_->id());
}

const ContextId& Context::id() const { return state_->id(); }

ContextId Context::current() {
  const std::optional<ContextId> context = current_or_none();
  if (context.has_value()) return *context;
  throw RpcError(ErrorCode::kFailedPrecondition,
                 "this thread works in no autograd context: make an autograd::Context, or open a "
                 "ContextScope");
}

std::optional<ContextId> Context::current_or_none() {
  const auto work = internal::current_work();
  if (work == nullptr) return std::nullopt;
  return work->context()->id();
}

ContextScope::ContextScope(const Worker& worker, const ContextId& context) {
  // First: whether the worker can be used at all.
  const std::shared_ptr<ContextState> state = find(worker, context);
  check_no_context();
  scope_ = std::make_unique<Scope>(state);
}

ContextScope::~ContextScope() = default;

// ---- Backward.

void backward(const Context& context, const std::vector<at::Tensor>& roots,
              const BackwardOptions& options) {
  backward(context.worker(), context.id(), roots, options);
}

void backward(const Worker& worker, const ContextId& context, const std::vector<at::Tensor>& roots,
              const BackwardOptions& options) {
  const std::shared_ptr<AutogradManager> manager = manager_of(worker);
  const auto now = manager->services().clock().now();
  const auto timeout = timeout_of(worker, options);
  internal::PassOptions pass;
  pass.graph = options.retain_graph ? internal::LocalBackward::Graph::kRetain
                                    : internal::LocalBackward::Graph::kRelease;
  if (timeout < internal::Clock::TimePoint::max() - now) pass.deadline = now + timeout;
  if (const auto& current = internal::ThreadContext::current()) {
    pass.deadline = std::min(pass.deadline, current->deadline());
  }
  manager->backward(manager->find(context), roots, pass);
}

// ---- Gradients.

Gradients gradients(const Worker& worker, const ContextId& context) {
  Gradients result;
  for (auto& [leaf, gradient] : find(worker, context)->gradients()) result.emplace(leaf, gradient);
  return result;
}

Gradients gradients(const Context& context) { return gradients(context.worker(), context.id()); }

at::Tensor gradient_of(const Worker& worker, const ContextId& context, const at::Tensor& leaf) {
  return find(worker, context)->gradient_of(leaf);
}

at::Tensor gradient_of(const Context& context, const at::Tensor& leaf) {
  return gradient_of(context.worker(), context.id(), leaf);
}

}  // namespace autograd

bool internal::has_ended(const Worker& worker, const autograd::ContextId& context,
                         Incarnation caller) {
  return manager_of(worker)->has_ended(context, caller);
}

std::uint64_t internal::next_context_serial(const Worker& worker) {
  return manager_of(worker)->next_serial();
}

void internal::scale_gradients(const Worker& worker, const autograd::ContextId& context,
                               const std::vector<at::Tensor>& leaves, double factor,
                               const ScaleRequest& request) {
  const std::shared_ptr<ContextState> state = find(worker, context);
  const bool is_own = request.by.incarnation == worker.info().incarnation;
  if (!is_own && !state->takes_part(request.by)) {
    throw RpcError(ErrorCode::kPermissionDenied,
                   absl::StrFormat("worker '%s' takes no part in autograd context %s",
                                   request.by.name, autograd::to_string(context)));
  }
  if (!state->scale_gradients(leaves, factor, request.operation)) {
    throw RpcError(
        ErrorCode::kFailedPrecondition,
        absl::StrFormat("a backward pass of autograd context %s runs: wait for it before "
                        "its gradients are scaled",
                        autograd::to_string(context)));
  }
}

// ---- At the owner of a reference.

std::unique_ptr<internal::CallBuilder> internal::begin_backward_at(
    const Peer& owner, const Worker& worker, const autograd::ContextId& context,
    const autograd::BackwardOptions& options) {
  CallOptions call_options = owner.options();
  call_options.timeout = timeout_of(worker, options);
  proto::AutogradBackward request;
  write_context(context, *request.mutable_context());
  request.set_retain_graph(options.retain_graph);
  auto call =
      std::make_unique<CallBuilder>(owner.with(call_options), "sinew.autograd.backward", "");
  call->argument().binary(request.SerializeAsString());
  return call;
}

void internal::finish_backward_at(CallBuilder& call) {
  auto pending = std::make_unique<TypedPendingCall<void>>(call.runner());
  const Future<void> done = pending->future();
  call.send(std::move(pending));
  done.wait();
}

}  // namespace sinew
