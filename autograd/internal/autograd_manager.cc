#include "sinew/autograd/internal/autograd_manager.h"

#include <algorithm>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "sinew/autograd.pb.h"
#include "sinew/autograd/internal/authority.h"
#include "sinew/autograd/internal/layer.h"
#include "sinew/autograd/internal/message_edges.h"
#include "sinew/autograd/internal/pass_messages.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/state_report.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {

namespace {

using Released = ContextState::Released;

// A reply is called what the call is that it answers.
MessageName name_of(const MessageRoute& route, ContextWork& work) {
  if (route.call() == nullptr) return {work.next_call(), MessageName::Kind::kCall};
  const auto* call = dynamic_cast<const IncomingEdges*>(route.call()->tensor_hook().get());
  return {call == nullptr ? CallName() : call->call(), MessageName::Kind::kReply};
}

}  // namespace

std::shared_ptr<Extension> make_autograd(WorkerServices& services) {
  return AutogradManager::make(services);
}

std::shared_ptr<AutogradManager> AutogradManager::make(WorkerServices& services) {
  std::shared_ptr<AutogradManager> manager(new AutogradManager(services));
  const std::weak_ptr<AutogradManager> weak = manager;
  services.add_control_method(
      "sinew.autograd.abort", [weak](const WorkerInfo& from, const std::string& body) {
        auto self = weak.lock();
        return self == nullptr ? make_ready_future(std::string()) : self->on_abort(from, body);
      });
  return manager;
}

std::shared_ptr<AutogradManager> AutogradManager::of(const WorkerServices& services) {
  return require_layer<AutogradManager>(services, kAutogradLayer);
}

AutogradManager::AutogradManager(WorkerServices& services)
    : services_(services), releases_(services) {}

AutogradManager::~AutogradManager() = default;

// ---- The table of contexts.

std::shared_ptr<ContextState> AutogradManager::create() {
  MutexLock lock(mutex_);
  if (stopped_) {
    throw_error(services_.ended("no context can be made there any more"));
  }
  const autograd::ContextId id{services_.self().incarnation, next_context_++, random_secret()};
  auto context = std::make_shared<ContextState>(id, services_.self());
  contexts_.emplace(id, context);
  return context;
}

std::shared_ptr<ContextState> AutogradManager::find_or_null(const autograd::ContextId& id) const {
  MutexLock lock(mutex_);
  const auto found = contexts_.find(id);
  return found == contexts_.end() ? nullptr : found->second;
}

std::shared_ptr<ContextState> AutogradManager::find(const autograd::ContextId& id) const {
  std::shared_ptr<ContextState> context = find_or_null(id);
  if (context == nullptr) {
    throw RpcError(
        ErrorCode::kNotFound,
        absl::StrFormat("worker '%s' has no autograd context %s: it has ended, or no call "
                        "has brought it there",
                        services_.self().name, autograd::to_string(id)));
  }
  return context;
}

std::shared_ptr<ContextState> AutogradManager::find_or_create(const autograd::ContextId& id,
                                                              const WorkerInfo& caller) {
  WorkerInfo creator;
  creator.incarnation = id.creator;
  MutexLock lock(mutex_);
  const auto found = contexts_.find(id);
  if (found != contexts_.end()) return found->second;
  if (stopped_ || id.creator == services_.self().incarnation ||
      ended_.contains(id, caller.incarnation) || services_.is_lost(creator)) {
    return nullptr;
  }
  auto context = std::make_shared<ContextState>(id, services_.self());
  contexts_.emplace(id, context);
  return context;
}

bool AutogradManager::has_ended(const autograd::ContextId& id, Incarnation caller) const {
  MutexLock lock(mutex_);
  if (contexts_.count(id) > 0) return false;
  return id.creator == services_.self().incarnation || ended_.contains(id, caller);
}

std::uint64_t AutogradManager::next_serial() const {
  MutexLock lock(mutex_);
  return next_context_;
}

std::uint64_t AutogradManager::live_from_locked() const {
  std::uint64_t live_from = next_context_;
  for (const auto& [id, context] : contexts_) {
    if (id.creator == services_.self().incarnation) live_from = std::min(live_from, id.serial);
  }
  return live_from;
}

// ---- The end of contexts.

void AutogradManager::end(const autograd::ContextId& id) {
  std::shared_ptr<ContextState> context;
  std::uint64_t live_from = 0;
  {
    MutexLock lock(mutex_);
    const auto found = contexts_.find(id);
    if (found == contexts_.end()) return;
    context = std::move(found->second);
    contexts_.erase(found);
    live_from = live_from_locked();
  }
  drop(context, Released::kEnded, absl::CancelledError("the context was ended"), std::nullopt,
       live_from);
}

void AutogradManager::drop(const std::shared_ptr<ContextState>& context, ContextState::Released how,
                           const absl::Status& reason, std::optional<Incarnation> told_by,
                           std::uint64_t live_from) {
  const ContextState::Remains remains = context->release(how);
  if (remains.pass != nullptr) {
    const std::string text = absl::StrFormat(
        "backward pass in context %s was given up at worker '%s': %s",
        autograd::to_string(context->id()), services_.self().name, reason.message());
    remains.pass->fail(make_error(absl::Status(reason.code(), text)));
  }
  // Its creator tells the workers that it knows; others may be known only here.
  for (const WorkerInfo& peer : remains.peers) {
    if (peer.incarnation == told_by || peer.incarnation == context->id().creator) continue;
    if (!services_.is_lost(peer)) releases_.add_ended(peer, context->id(), live_from);
  }
}

void AutogradManager::on_note(const WorkerInfo& from, std::string body) {
  proto::AutogradRelease release;
  if (!release.ParseFromString(body)) {
    services_.log(absl::StrFormat("worker '%s' sent a list of ended contexts that cannot be parsed",
                                  from.name));
    return;
  }
  // A sender that is no member has no contexts to end.
  if (!check_member(from).ok()) return;
  std::vector<std::shared_ptr<ContextState>> ended;
  std::vector<autograd::ContextId> ended_long_ago;
  std::uint64_t live_from = 0;
  std::uint64_t own_live_from = 0;
  {
    MutexLock lock(mutex_);
    for (const proto::AutogradReleased& released : release.contexts()) {
      const autograd::ContextId id = read_context(released.context());
      if (id.creator == services_.self().incarnation) continue;  // Only this worker ends its own.
      // Also where it ends nothing: calls of the one that says so may still be on their way.
      ended_.add(from.incarnation, id, released.live_from());
      const auto found = contexts_.find(id);
      if (found == contexts_.end()) continue;
      const Part part = found->second->takes_part(from) ? Part::kTakesPart : Part::kNone;
      if (!may_end(from, id, part)) continue;
      ended.push_back(std::move(found->second));
      contexts_.erase(found);
    }
    for (const proto::AutogradContext& message : release.held()) {
      const autograd::ContextId id = read_context(message);
      const auto found = contexts_.find(id);
      if (found != contexts_.end() && found->second->add_peer(from)) continue;
      if (id.creator == services_.self().incarnation) ended_long_ago.push_back(id);
    }
    own_live_from = live_from_locked();
    live_from = ended_.live_from(from.incarnation);
    for (auto at = contexts_.begin(); at != contexts_.end();) {
      const auto next = std::next(at);
      if (at->first.creator == from.incarnation && at->first.serial < live_from) {
        ended.push_back(std::move(at->second));
        contexts_.erase(at);
      }
      at = next;
    }
  }
  for (const auto& context : ended) {
    // Others are told what the creator has said by itself, and no more.
    const bool by_creator = context->id().creator == from.incarnation;
    drop(context, Released::kEnded, absl::CancelledError("the context has ended"), from.incarnation,
         by_creator ? live_from : 0);
  }
  for (const autograd::ContextId& id : ended_long_ago) releases_.add_ended(from, id, own_live_from);
}

std::vector<std::pair<WorkerInfo, autograd::ContextId>> AutogradManager::brought_by(
    const WorkerInfo& worker) const {
  std::vector<std::pair<WorkerInfo, autograd::ContextId>> brought;
  const std::vector<Member> members = services_.directory().members();
  MutexLock lock(mutex_);
  for (const auto& [id, context] : contexts_) {
    if (id.creator == services_.self().incarnation || id.creator == worker.incarnation) continue;
    if (!context->takes_part(worker)) continue;
    for (const Member& member : members) {
      if (member.worker.incarnation == id.creator) brought.emplace_back(member.worker, id);
    }
  }
  return brought;
}

void AutogradManager::on_worker_fenced(const WorkerInfo& worker) {
  releases_.forget(worker.incarnation);
  // Who made them may not know of this worker.
  for (const auto& [creator, context] : brought_by(worker)) releases_.add_held(creator, context);
  std::vector<std::shared_ptr<ContextState>> ended;
  std::vector<std::shared_ptr<BackwardPass>> passes;
  absl::flat_hash_set<Incarnation> members = {services_.self().incarnation};
  for (const Member& member : services_.directory().members()) {
    members.insert(member.worker.incarnation);
  }
  {
    MutexLock lock(mutex_);
    ended_.forget(worker.incarnation);
    for (auto at = contexts_.begin(); at != contexts_.end();) {
      const auto next = std::next(at);
      // A worker that is no member may never have been one. Then no other worker would end what it
      // is said to have made.
      const bool ends = at->first.creator == worker.incarnation ||
                        (!members.contains(at->first.creator) && at->second->takes_part(worker));
      if (ends) {
        ended.push_back(std::move(at->second));
        contexts_.erase(at);
      } else if (auto pass = at->second->pass();
                 pass != nullptr && pass->id().initiator == worker.incarnation) {
        passes.push_back(std::move(pass));
      }
      at = next;
    }
  }
  const absl::Status reason =
      absl::UnavailableError(absl::StrFormat("worker '%s', which leads it, is lost", worker.name));
  for (const auto& context : ended) {
    drop(context, Released::kLost, reason, worker.incarnation, 0);
  }
  for (const auto& pass : passes) {
    pass->abandon(
        make_error(reason, worker.name, {}, Execution::kMayHaveRun, ErrorOrigin::kNetwork));
  }
}

Future<std::vector<std::string>> AutogradManager::drain_async(DrainScope,
                                                              Clock::TimePoint deadline) {
  std::vector<std::string> open;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, context] : contexts_) {
      if (id.creator != services_.self().incarnation) continue;
      open.push_back(absl::StrFormat("autograd context %s was not ended before the shutdown",
                                     autograd::to_string(id)));
    }
  }
  return releases_.when_empty(deadline).then([open] { return open; });
}

void AutogradManager::stop() {
  releases_.stop();
  absl::flat_hash_map<autograd::ContextId, std::shared_ptr<ContextState>> contexts;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    contexts.swap(contexts_);
  }
  for (const auto& [id, context] : contexts) {
    drop(context, Released::kEnded, absl::CancelledError("the worker was shut down"), std::nullopt,
         0);
  }
}

void AutogradManager::add_counters(Counters& counters) const {
  ContextState::Sizes all;
  std::vector<std::shared_ptr<ContextState>> contexts;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, context] : contexts_) contexts.push_back(context);
  }
  for (const auto& context : contexts) {
    const ContextState::Sizes sizes = context->sizes();
    all.sends += sizes.sends;
    all.recvs += sizes.recvs;
    all.passes += sizes.passes;
    all.facts += sizes.facts;
    all.nodes += sizes.nodes;
  }
  counters["autograd.contexts"] = static_cast<std::int64_t>(contexts.size());
  counters["autograd.sends"] = static_cast<std::int64_t>(all.sends);
  counters["autograd.recvs"] = static_cast<std::int64_t>(all.recvs);
  counters["autograd.passes"] = static_cast<std::int64_t>(all.passes);
  counters["autograd.facts"] = static_cast<std::int64_t>(all.facts);
  counters["autograd.nodes"] = static_cast<std::int64_t>(all.nodes);
  counters["autograd.calls"] = calls_.load(std::memory_order_relaxed);
}

// ---- What travels with calls.

void AutogradManager::begin_message(MessageRoute& route, const std::shared_ptr<void>& ambient) {
  // The only thing that follows work.
  const auto work = std::static_pointer_cast<ContextWork>(ambient);
  const std::shared_ptr<ContextState>& context = work->context();
  // A worker of the same process may be called through; clients that are no workers take no part.
  if (context->self().incarnation != services_.self().incarnation || route.peer().rank < 0) return;
  if (route.tensor_hook() != nullptr) return;
  if (context->released()) {
    if (context->is_lost())
      route.set_tensor_hook(std::make_shared<LostEdges>(context->id(), services_.self().name));
    return;
  }
  const auto recording =
      at::GradMode::is_enabled() ? OutgoingEdges::Recording::kOn : OutgoingEdges::Recording::kOff;
  route.set_tensor_hook(
      std::make_shared<OutgoingEdges>(context, route.peer(), name_of(route, *work), recording));
}

std::string AutogradManager::on_send(MessageRoute& route) {
  auto* edges = dynamic_cast<OutgoingEdges*>(route.tensor_hook().get());
  if (edges == nullptr) return {};
  ContextState& context = *edges->context();
  if (!context.add_peer(edges->receiver())) return {};
  proto::AutogradAttachment attachment;
  write_context(context.id(), *attachment.mutable_context());
  attachment.set_no_grad(edges->recording() == OutgoingEdges::Recording::kOff);
  if (edges->name().kind == MessageName::Kind::kCall) {
    attachment.set_work(edges->name().call.work);
    attachment.set_call(edges->name().call.number);
  }
  if (auto sent = edges->take_edges(); !sent.empty()) {
    const std::uint64_t message = next_message_.fetch_add(1, std::memory_order_relaxed);
    attachment.set_message(message);
    context.record_send(message, edges->receiver(), {edges->name(), std::move(sent)});
  }
  for (const Lineage::Fact& fact : context.news_for(edges->receiver())) {
    write_fact(fact, *attachment.add_facts());
  }
  return attachment.SerializeAsString();
}

void AutogradManager::on_unfollowed_gradient(const std::string& method, const WorkerInfo& callee) {
  if (!at::GradMode::is_enabled() || has_warned_.load(std::memory_order_relaxed)) return;
  {
    MutexLock lock(mutex_);
    const bool is_open = std::any_of(contexts_.begin(), contexts_.end(), [&](const auto& entry) {
      return entry.first.creator == services_.self().incarnation;
    });
    if (!is_open || has_warned_.exchange(true, std::memory_order_relaxed)) return;
  }
  services_.log(absl::StrFormat(
      "a call of '%s' to worker '%s' takes tensors along that require gradients, from a thread "
      "that "
      "works in no autograd context, while one is open on another: no gradient comes back along "
      "it. Make an autograd::ContextScope on the calling thread, or, where none is wanted, call "
      "with detached tensors or within a NoGradGuard. This is said once",
      method, callee.name));
}

void AutogradManager::on_receive(MessageRoute& route, MessageKind kind, const std::string& bytes) {
  proto::AutogradAttachment attachment;
  if (absl::Status member = check_member(route.peer()); !member.ok()) throw_error(member);
  if (const absl::Status parsed = parse_bounded(bytes, attachment); !parsed.ok()) {
    throw RpcError(parsed.code(), absl::StrFormat("what worker '%s' says about gradients: %s",
                                                  route.peer().name, parsed.message()));
  }
  const autograd::ContextId id = read_context(attachment.context());
  const std::shared_ptr<ContextState> context =
      kind == MessageKind::kCall ? find_or_create(id, route.peer()) : find_or_null(id);
  if (kind == MessageKind::kCall) route.set_grad_mode(!attachment.no_grad());
  if (context == nullptr && kind == MessageKind::kCall &&
      !has_ended(id, route.peer().incarnation)) {
    // Not from here, where its creator is lost. What is not recorded must not pass for a result.
    auto lost = std::make_shared<ContextState>(id, services_.self());
    lost->release(ContextState::Released::kLost);
    route.set_ambient(std::make_shared<ContextWork>(std::move(lost), CallName()));
    return;
  }
  // It has ended: the work goes on, and records nothing.
  if (context == nullptr || !context->add_peer(route.peer())) return;
  std::vector<Lineage::Fact> facts;
  for (const proto::AutogradFact& fact : attachment.facts()) facts.push_back(read_fact(fact));
  if (!facts.empty()) context->learn(facts, route.peer().incarnation);
  const CallName call{attachment.work(), attachment.call()};
  if (kind == MessageKind::kCall) route.set_ambient(std::make_shared<ContextWork>(context, call));
  route.set_tensor_hook(
      std::make_shared<IncomingEdges>(context, route.peer(), attachment.message(), call));
}

void AutogradManager::report(StateReport& report) const {
  if (!report.wants("contexts")) return;
  std::vector<std::shared_ptr<ContextState>> contexts;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, context] : contexts_) contexts.push_back(context);
  }
  for (const auto& context : contexts) {
    proto::GradientContext* const told = report.add(*report.state().mutable_contexts(), "contexts");
    if (told == nullptr) continue;
    const ContextState::Sizes sizes = context->sizes();
    told->set_creator(context->id().creator.value);
    told->set_serial(context->id().serial);
    told->set_sends(sizes.sends);
    told->set_receives(sizes.recvs);
    told->set_passes(sizes.passes);
    for (const WorkerInfo& peer : context->peers()) write_identity(peer, *told->add_peers());
  }
}

}  // namespace sinew::internal
