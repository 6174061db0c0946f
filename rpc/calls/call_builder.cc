#include "sinew/rpc/calls/call_builder.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/error_codec.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/message_devices.h"
#include "sinew/rpc/calls/message_layers.h"
#include "sinew/rpc/calls/retried_call.h"
#include "sinew/rpc/calls/retry_rules.h"
#include "sinew/rpc/calls/scratch_envelope.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/wire/message_context.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMaxTurns = 64;

WorkerServices& services_of(const Peer& peer) {
  const auto& services = PeerAccess::services(peer);
  if (services == nullptr) PeerAccess::fail(peer);
  services->process().require();
  ProcessLife::stand_still_at_exit();
  if (!services->is_running()) throw_error(services->ended("it makes no calls any more"));
  if (const absl::Status evicted = services->evicted(); !evicted.ok()) throw_error(evicted);
  return *services;
}

/// Whole microseconds, rounded up; 0 stands for no limit.
std::uint64_t rounded_timeout_us(std::chrono::nanoseconds timeout) {
  if (timeout == kNoTimeout) return 0;
  if (timeout <= std::chrono::nanoseconds(0)) {
    throw RpcError(
        ErrorCode::kInvalidArgument,
        absl::StrFormat("a call's timeout must be positive, or kNoTimeout; this one is %d ns",
                        timeout.count()));
  }
  return static_cast<std::uint64_t>((timeout.count() - 1) / 1000 + 1);
}

void add_turns(const CallContext& parent, proto::Call& call) {
  const auto* const served = dynamic_cast<const Invocation*>(&parent);
  if (served == nullptr) return;
  const std::vector<std::uint64_t> turns = served->held_turns();
  const std::size_t first = turns.size() > kMaxTurns ? turns.size() - kMaxTurns : 0;
  for (std::size_t i = first; i < turns.size(); ++i) call.add_turns(turns[i]);
}

}  // namespace

struct CallBuilder::State {
  State(const Peer& called, WorkerServices& worker_services, Clock::TimePoint now,
        Clock::TimePoint call_deadline)
      : peer(called),
        services(worker_services),
        started(now),
        deadline(call_deadline),
        route(worker_services, PeerAccess::link(called)->peer(), call_deadline),
        context(&route) {
    allow_devices(route, context);
  }

  const Peer peer;
  WorkerServices& services;
  const Clock::TimePoint started;
  const Clock::TimePoint deadline;
  MessageRoute route;
  EncodeContext context;
  ScratchEnvelope envelope{ScratchEnvelope::Kind::kCall};
  std::function<std::exception_ptr()> explain;
  std::vector<CancellationToken> cancellations;
  WhenFull when_full = WhenFull::kWait;
  bool is_idempotent = false;
};

void CallBuilder::End::operator()(State* state) const { state->~State(); }

CallBuilder::CallBuilder(const Peer& peer, std::string_view method, const std::string& signature)
    : state_(begin(peer, method, signature)) {}

CallBuilder::StateInPlace CallBuilder::begin(const Peer& peer, std::string_view method,
                                             const std::string& signature) {
  WorkerServices& services = services_of(peer);
  if (peer.options().retry.has_value()) checked(*peer.options().retry);
  const Clock::TimePoint now = services.clock().now();
  const std::uint64_t timeout_us =
      rounded_timeout_us(peer.options().timeout.value_or(services.default_timeout()));
  Clock::TimePoint deadline = Clock::TimePoint::max();
  // Compared in microseconds: in nanoseconds the timeout might not fit.
  const auto longest =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::TimePoint::max() - now);
  if (timeout_us != 0 && timeout_us < static_cast<std::uint64_t>(longest.count())) {
    deadline = now + std::chrono::microseconds(timeout_us);
  }
  const CallContext* parent = CallContext::current_or_null();
  if (parent != nullptr) deadline = std::min(deadline, parent->deadline());
  static_assert(sizeof(State) <= kStateBytes && alignof(State) <= alignof(std::max_align_t));
  StateInPlace state(new (memory_) State(peer, services, now, deadline));
  state->context.set_describe([called = state.get()] {
    return absl::StrFormat("a call of method '%s' to worker '%s'",
                           called->envelope->call().method(), called->route.peer().name);
  });
  if (peer.options().retry.has_value()) state->route.set_may_be_repeated();
  if (const auto& current = ThreadContext::current(); current != nullptr) {
    begin_message(state->route, current->ambient(), state->context);
  }
  proto::Call& call = *state->envelope->mutable_call();
  // Of set_method() a string would be made first.
  call.mutable_method()->assign(method.data(), method.size());
  call.set_signature(signature);
  if (parent != nullptr) {
    const std::vector<std::string> chain = parent->chain();
    const std::size_t first = chain.size() > kMaxChain ? chain.size() - kMaxChain : 0;
    for (std::size_t i = first; i < chain.size(); ++i) call.add_chain(chain[i]);
    add_turns(*parent, call);
  }
  return state;
}

CallBuilder::~CallBuilder() = default;

ValueWriter CallBuilder::argument() {
  return ValueWriter(*state_->envelope->mutable_call()->add_arguments(), state_->context);
}

proto::Reference& CallBuilder::target() {
  const std::optional<RetryPolicy>& policy = state_->peer.options().retry;
  if (policy.has_value() && policy->retry_at == RetryAt::kNextOfItsName) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("method '%s' is called through a reference, which belongs to "
                                   "one incarnation of worker '%s': RetryAt::kNextOfItsName is "
                                   "for calls on a Peer",
                                   method(), state_->peer.name()));
  }
  return *state_->envelope->mutable_call()->mutable_target();
}

proto::Retain& CallBuilder::retain() {
  proto::Call& call = *state_->envelope->mutable_call();
  call.set_disposition(proto::RETAIN);
  return *call.mutable_retain();
}

void CallBuilder::explain_errors(std::function<std::exception_ptr()> explain) {
  state_->explain = std::move(explain);
}

void CallBuilder::cancel_with(CancellationToken token) {
  if (token.can_be_cancelled()) state_->cancellations.push_back(std::move(token));
}

void CallBuilder::set_idempotent() { state_->is_idempotent = true; }

void CallBuilder::set_when_full(WhenFull when_full) { state_->when_full = when_full; }

MessageRoute& CallBuilder::route() { return state_->route; }

const std::string& CallBuilder::method() const { return state_->envelope->call().method(); }

std::shared_ptr<TaskRunner> CallBuilder::runner() const {
  return state_->services.executor()->runner();
}

void CallBuilder::send(std::unique_ptr<PendingCall> pending) {
  State& state = *state_;
  proto::Call& call = *state.envelope->mutable_call();
  pending->method = call.method();
  pending->started = state.started;
  pending->deadline = state.deadline;
  pending->waits_for_room = state.when_full == WhenFull::kWait;
  if (state.context.has_unfollowed_gradient()) {
    for (const auto& extension : state.services.extensions()) {
      extension->on_unfollowed_gradient(call.method(), state.route.peer());
    }
  }
  // Before anything is offered: it may refuse.
  pending->streams = state.services.devices().streams_of_results(state.route.peer());
  attach_layers(state.route, *call.mutable_attachments());
  pending->explain = std::move(state.explain);
  cancel_with(state.peer.options().cancellation);
  if (const CallContext* parent = CallContext::current_or_null()) {
    cancel_with(parent->cancellation());
    pending->parent_caller = parent->caller().incarnation;
    if (const auto* served = dynamic_cast<const Invocation*>(parent)) {
      pending->parent_id = served->call_id();
    }
  }
  pending->cancellations = std::move(state.cancellations);
  if (state.peer.options().retry.has_value()) {
    const auto retried = std::make_shared<RetriedCall>(state.services, std::move(*state.envelope),
                                                       std::move(state.context.payloads()),
                                                       retry_rules(), std::move(pending));
    retried->only_once(why_once());
    retried->start(PeerAccess::link(state.peer), state.route);
    return;
  }
  pending->on_end = state.route.take_on_end();
  PeerAccess::link(state.peer)
      ->start_call(std::move(pending), *state.envelope, std::move(state.context.payloads()),
                   Lane::kCalls);
  state.envelope.note_serialised();
}

// What layers and devices expect along a message they expect once. Empty: it may be repeated.
std::string CallBuilder::why_once() const {
  if (state_->route.tensor_hook() != nullptr) {
    return "it is of an autograd context, whose gradients come back along one message";
  }
  const MessageRoute::DevicePart* devices = state_->route.device_part();
  const bool has_transfers = devices != nullptr && devices->has_transfers();
  return has_transfers ? "its tensors went from device to device, along one message" : "";
}

RetryRules CallBuilder::retry_rules() const {
  const bool retains = state_->envelope->call().disposition() == proto::RETAIN;
  const RetryRules::Safety safety = retains                 ? RetryRules::Safety::kStartsOnce
                                    : state_->is_idempotent ? RetryRules::Safety::kIdempotent
                                                            : RetryRules::Safety::kRunsOnce;
  return {*state_->peer.options().retry, safety, state_->deadline};
}

}  // namespace sinew::internal
