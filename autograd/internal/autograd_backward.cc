// The backward passes of the autograd layer: how they start, and what workers say to each other.

#include <algorithm>
#include <utility>

#include "ATen/ops/ones_like.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/autograd.pb.h"
#include "sinew/autograd/internal/authority.h"
#include "sinew/autograd/internal/autograd_manager.h"
#include "sinew/autograd/internal/pass_messages.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/threads/waiter_runner.h"
#include "sinew/rpc/calls/call_builder.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/pending_call.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/wire/bytes.h"

#include <torch/csrc/autograd/variable.h>

namespace sinew::internal {
namespace {

constexpr std::string_view kAbortMethod = "sinew.autograd.abort";

constexpr auto kAbortTime = std::chrono::seconds(30);

absl::Status given_up() { return absl::AbortedError("the initiator has given the pass up"); }

Part part_of(const ContextState& context, const WorkerInfo& worker) {
  return context.takes_part(worker) ? Part::kTakesPart : Part::kNone;
}

// ---- Calling.

/// The outcome of a call that asks a worker to take part, or brings it gradients.
class PartOutcome final : public PendingCall {
 public:
  PartOutcome(std::shared_ptr<BackwardPass> pass, Incarnation worker)
      : pass_(std::move(pass)), worker_(worker) {}

  void on_reply(ReceivedReply reply) override {
    try {
      reply.throw_if_error();
      if (!has_gradients(reply))
        return pass_->on_answer(worker_, nullptr, read(*pass_, worker_, reply));
    } catch (...) {
      return pass_->on_answer(worker_, std::current_exception(), {});
    }
    // The graph does not run on the transport's thread.
    pass_->options().runner->post([pass = pass_, worker = worker_,
                                   reply = std::make_shared<ReceivedReply>(std::move(reply))] {
      auto answer = std::make_shared<PartAnswer>();
      try {
        *answer = read(*pass, worker, *reply);
      } catch (...) {
        return pass->on_answer(worker, std::current_exception(), {});
      }
      ReceivedReply::when_arrived(reply, [pass, worker, answer](const std::exception_ptr& error) {
        pass->on_answer(worker, error, std::move(*answer));
      });
    });
  }
  void on_error(std::exception_ptr error) override {
    pass_->on_answer(worker_, std::move(error), {});
  }

 private:
  static bool has_gradients(ReceivedReply& reply) {
    const ValueReader reader = reply.value();
    return reader.list().size() > 1;
  }
  static PartAnswer read(const BackwardPass& pass, Incarnation worker, ReceivedReply& reply) {
    const ValueReader reader = reply.value();
    const ListReader list = reader.list();
    const auto message = parse_message<proto::AutogradRunReply>(list.item(0));
    std::size_t next = 1;
    PartAnswer answer{read_gradients(message.gradients(), [&] { return list.item(next++); }),
                      message.waits()};
    if (absl::Status due = pass.context().check_brings(worker, answer.gradients); !due.ok()) {
      throw_error(due);
    }
    return answer;
  }

  const std::shared_ptr<BackwardPass> pass_;
  const Incarnation worker_;
};

/// The link with a worker that is known by its incarnation only.
Peer peer_of(WorkerServices& services, const ContextState& context, Incarnation incarnation) {
  WorkerInfo found;
  for (const WorkerInfo& peer : context.peers()) {
    if (peer.incarnation == incarnation) found = peer;
  }
  for (const Member& member : services.directory().members()) {
    if (member.worker.incarnation == incarnation) found = member.worker;
  }
  if (found.rank < 0) {
    throw RpcError(ErrorCode::kUnavailable,
                   "a worker that took part in the context is not a member of the job any more");
  }
  absl::StatusOr<std::shared_ptr<CallLink>> link = services.link(found);
  if (!link.ok()) throw_error(link.status());
  return PeerAccess::make(services.shared_services(), *std::move(link));
}

Peer peer_for(WorkerServices& services, const BackwardPass& pass, Incarnation worker) {
  CallOptions options;
  const Clock::TimePoint deadline = pass.options().deadline;
  options.timeout = kNoTimeout;
  if (deadline != Clock::TimePoint::max()) {
    options.timeout = std::max<std::chrono::nanoseconds>(deadline - services.clock().now(),
                                                         std::chrono::microseconds(1));
  }
  options.cancellation = pass.cancellation();
  return peer_of(services, pass.context(), worker).with(options);
}

// ---- Errors.

/// The failure of a pass, as the user sees it.
std::exception_ptr pass_failure(const std::exception_ptr& error, const ContextState& context) {
  ErrorInfo info = describe(error);
  if (absl::StartsWith(info.message, "backward pass ")) return error;
  info.message = absl::StrFormat(
      "backward pass in context %s failed%s: %s", autograd::to_string(context.id()),
      info.peer.empty() ? "" : absl::StrCat(" at worker '", info.peer, "'"), info.message);
  return make_error(std::move(info));
}

[[noreturn]] void refuse_root(std::size_t number, std::string_view problem) {
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrFormat("root %d of backward() %s", number, problem));
}

void check_roots(const std::vector<at::Tensor>& roots) {
  if (roots.empty()) {
    throw RpcError(
        ErrorCode::kInvalidArgument,
        "backward() needs at least one root: the tensor to differentiate, a loss mostly");
  }
  for (std::size_t i = 0; i < roots.size(); ++i) {
    const at::Tensor& root = roots[i];
    if (!root.defined()) refuse_root(i + 1, "is undefined");
    if (!root.requires_grad()) {
      refuse_root(i + 1,
                  "does not require a gradient: none of what it was computed from does, or it was "
                  "computed without a graph (NoGradGuard, detach())");
    }
    if (root.numel() != 1) {
      refuse_root(i + 1,
                  absl::StrFormat("has %d elements: a root is a scalar, e.g. a sum() or mean()",
                                  root.numel()));
    }
    if (root.is_complex()) {
      // As LibTorch from 2.0 on; before it took the gradient to be one.
      refuse_root(i + 1, "is complex: a gradient of one goes with real scalars alone");
    }
    if (torch::autograd::impl::gradient_edge(root).function->num_outputs() == 0 && root.is_leaf()) {
      refuse_root(i + 1, "is a leaf: it was not computed from anything");
    }
  }
}

}  // namespace

// ---- The initiator.

/// The look for all edges that gradients will travel along.
struct AutogradManager::Search {
  explicit Search(Incarnation self) : live(self) {}

  std::shared_ptr<ContextState> context;
  std::shared_ptr<BackwardPass> pass;
  PassOptions options;
  torch::autograd::edge_list roots;
  torch::autograd::variable_list root_gradients;
  LiveEdges live;
  // Asked about before. A worker that did not know the answer then will never know it.
  absl::flat_hash_set<EdgeId> asked;
};

std::shared_ptr<BackwardPass> AutogradManager::join(const std::shared_ptr<ContextState>& context,
                                                    const PassId& id) {
  absl::StatusOr<ContextState::Joined> joined =
      context->join_pass(id, [&] { return std::make_shared<BackwardPass>(*this, context, id); });
  if (!joined.ok()) throw_error(joined.status());
  if (joined->stale != nullptr) {
    joined->stale->fail(make_error(given_up()));
  }
  return joined->pass;
}

void AutogradManager::backward(const std::shared_ptr<ContextState>& context,
                               const std::vector<at::Tensor>& roots, PassOptions options) {
  const auto runner = std::make_shared<WaiterRunner>(services_.executor()->runner());
  options.runner = runner;
  runner->wait(backward_async(context, roots, options, [runner] { runner->notify(); }));
}

Future<void> AutogradManager::backward_async(const std::shared_ptr<ContextState>& context,
                                             const std::vector<at::Tensor>& roots,
                                             const PassOptions& options,
                                             std::function<void()> on_end) {
  check_roots(roots);
  const PassId id{services_.self().incarnation, next_pass_.fetch_add(1, std::memory_order_relaxed)};
  auto search = std::make_shared<Search>(services_.self().incarnation);
  search->context = context;
  search->options = options;
  for (const at::Tensor& root : roots) {
    search->roots.push_back(torch::autograd::impl::gradient_edge(root));
    search->root_gradients.push_back(at::ones_like(root));
  }
  search->pass = join(context, id);
  Promise<void> promise(services_.executor().get());
  Future<void> future = promise.future();
  TimerQueue::TimerId timer = 0;
  const auto on_deadline = [this, started = services_.clock().now(),
                            weak = std::weak_ptr<BackwardPass>(search->pass)] {
    const auto pass = weak.lock();
    if (pass == nullptr) return;
    pass->fail(make_error(absl::DeadlineExceededError(
        absl::StrFormat("backward pass in context %s did not end within %.6g s at worker '%s': %s",
                        autograd::to_string(pass->context().id()),
                        std::chrono::duration<double>(services_.clock().now() - started).count(),
                        services_.self().name, pass->describe_wait()))));
  };
  if (options.deadline != Clock::TimePoint::max()) {
    timer = services_.timers().run_at(
        options.deadline, [this, on_deadline] { services_.control_executor().post(on_deadline); });
  }
  BackwardPass::OnAnswer on_answer = [this, promise, context, timer, on_end = std::move(on_end)](
                                         const std::exception_ptr& error, const PartAnswer&) {
    if (timer != 0) services_.timers().cancel(timer);
    if (error == nullptr) {
      promise.try_set_value();
    } else {
      promise.try_set_error(pass_failure(error, *context));
    }
    on_end();
  };
  search->pass->prepare(options, std::nullopt, Answering::kAtTheEnd, on_answer);
  // A timer may be late, and the pass would be through before.
  if (services_.clock().now() >= options.deadline) {
    on_deadline();
    return future;
  }
  search->live.start(context->behind_edges(search->roots));
  this->search(search);
  return future;
}

void AutogradManager::search(const std::shared_ptr<Search>& search) {
  try {
    std::map<Incarnation, std::vector<EdgeId>> unknown = search->context->follow(search->live);
    if (unknown.empty()) return begin_pass(search);
    for (const auto& [worker, edges] : unknown) {
      for (const EdgeId& edge : edges) {
        if (worker != services_.self().incarnation && search->asked.insert(edge).second) continue;
        throw RpcError(ErrorCode::kInternal,
                       absl::StrFormat("no worker knows what is behind edge %d of message %d",
                                       edge.index, edge.message));
      }
    }
    ask_for_facts(search, std::move(unknown));
  } catch (...) {
    search->pass->fail(std::current_exception());
  }
}

void AutogradManager::ask_for_facts(const std::shared_ptr<Search>& search,
                                    std::map<Incarnation, std::vector<EdgeId>> unknown) {
  std::vector<Future<Bytes>> answers;
  std::vector<Incarnation> workers;
  for (const auto& [worker, edges] : unknown) {
    proto::AutogradFactsRequest request;
    write_context(search->context->id(), *request.mutable_context());
    for (const EdgeId& edge : edges) write_edge(edge, *request.add_edges());
    auto pending = std::make_unique<TypedPendingCall<Bytes>>(search->options.runner);
    answers.push_back(pending->future());
    workers.push_back(worker);
    send(peer_for(services_, *search->pass, worker), kFactsMethod, request.SerializeAsString(), {},
         std::move(pending));
  }
  collect_all(std::move(answers))
      .on_done(
          [self = shared_from_this(), search, workers](const Future<std::vector<Bytes>>& done) {
            try {
              const std::vector<Bytes>& all = done.value();
              for (std::size_t i = 0; i < all.size(); ++i) {
                proto::AutogradFacts message;
                const absl::Status parsed = parse_bounded(all[i].data, message);
                if (!parsed.ok()) throw_error(parsed);
                std::vector<Lineage::Fact> facts;
                for (const auto& fact : message.facts()) facts.push_back(read_fact(fact));
                search->context->learn(facts, workers[i]);
              }
            } catch (...) {
              search->pass->fail(std::current_exception());
              return;
            }
            self->search(search);
          });
}

void AutogradManager::begin_pass(const std::shared_ptr<Search>& search) {
  BackwardPass::Part part;
  part.roots = std::move(search->roots);
  part.root_gradients = std::move(search->root_gradients);
  part.ask = search->live.by_sender();
  if (const auto here = part.ask.find(services_.self().incarnation); here != part.ask.end()) {
    part.live = std::move(here->second);
    part.ask.erase(here);
  }
  for (auto at = part.ask.begin(); at != part.ask.end();) {
    const auto next = std::next(at);
    if (search->live.only_from_self(at->first)) part.ask_later.insert(part.ask.extract(at));
    at = next;
  }
  absl::StatusOr<ContextState::Entries> entries = search->context->entries(part.live);
  if (!entries.ok()) throw_error(entries.status());
  part.entries = *std::move(entries);
  search->pass->begin(std::move(part));
}

// ---- Between workers.

void AutogradManager::send(const Peer& peer, std::string_view method, const std::string& message,
                           const std::vector<EdgeGradients>& gradients,
                           std::unique_ptr<PendingCall> pending) {
  // It belongs to no call that is being served, and to no context.
  const ThreadContext::Scope outside(nullptr);
  CallBuilder call(peer, method, "");
  call.argument().binary(message);
  for (const EdgeGradients& one : gradients) {
    for (std::size_t i = 0; i < one.gradients.size(); ++i) {
      call.argument().tensor_to(one.gradients[i], one.targets.at(i));
    }
  }
  calls_.fetch_add(1, std::memory_order_relaxed);
  call.send(std::move(pending));
}

void AutogradManager::ask(const std::shared_ptr<BackwardPass>& pass, Incarnation worker,
                          const std::vector<MessageEdges>& live,
                          std::vector<EdgeGradients> gradients, Answering answering) {
  try {
    const PassOptions options = pass->options();
    proto::AutogradRun run;
    write_pass(pass->context().id(), pass->id(), *run.mutable_pass());
    run.set_retain_graph(options.graph == LocalBackward::Graph::kRetain);
    write_edges(live, *run.mutable_live());
    write_edges(gradients, *run.mutable_gradients());
    for (const std::uint64_t failed : pass->context().failures_owed_to(worker)) {
      run.add_failed(failed);
    }
    run.set_in_steps(answering == Answering::kInSteps);
    send(peer_for(services_, *pass, worker), kRunMethod, run.SerializeAsString(), gradients,
         std::make_unique<PartOutcome>(pass, worker));
  } catch (...) {
    pass->on_answer(worker, std::current_exception(), {});
  }
}

void AutogradManager::bring(const std::shared_ptr<BackwardPass>& pass, Incarnation worker,
                            std::vector<EdgeGradients> gradients, Answering answering) {
  try {
    proto::AutogradDelivery delivery;
    delivery.set_in_steps(answering == Answering::kInSteps);
    write_pass(pass->context().id(), pass->id(), *delivery.mutable_pass());
    write_edges(gradients, *delivery.mutable_gradients());
    send(peer_for(services_, *pass, worker), kGradientsMethod, delivery.SerializeAsString(),
         gradients, std::make_unique<PartOutcome>(pass, worker));
  } catch (...) {
    pass->on_answer(worker, std::current_exception(), {});
  }
}

void AutogradManager::abort(const std::shared_ptr<ContextState>& context, const PassId& pass,
                            const std::vector<Incarnation>& workers) {
  if (workers.empty()) return;
  proto::AutogradAbort abort;
  write_pass(context->id(), pass, *abort.mutable_pass());
  context->owe_failure(pass.serial, workers);
  for (const Incarnation worker : workers) {
    try {
      // A worker that cannot be told learns of the end of the context, or of this worker.
      services_
          .control_call(peer_of(services_, *context, worker).info(), kAbortMethod,
                        abort.SerializeAsString(), kAbortTime)
          .on_done([context, pass, worker](const Future<std::string>& done) {
            if (done.error() == nullptr) context->settle_failure(pass.serial, worker);
          });
    } catch (const RpcError&) {
      continue;
    }
  }
}

void AutogradManager::on_run(const WorkerInfo& from, const proto::AutogradRun& run,
                             std::vector<EdgeGradients> gradients, Clock::TimePoint deadline,
                             const CancellationToken& cancellation, BackwardPass::OnAnswer answer) {
  const PassId id = read_pass(run.pass());
  PassOptions options;
  options.graph =
      run.retain_graph() ? LocalBackward::Graph::kRetain : LocalBackward::Graph::kRelease;
  if (absl::Status member = check_member(from); !member.ok()) throw_error(member);
  const std::shared_ptr<ContextState> context = find(read_context(run.pass().context()));
  absl::Status due = check_asks(from, id);
  if (due.ok()) due = context->check_brings(from.incarnation, gradients);
  if (!due.ok()) throw_error(due);
  for (const std::uint64_t failed : run.failed()) end_failed(context, {from.incarnation, failed});
  const std::shared_ptr<BackwardPass> pass = join(context, id);
  options.runner = services_.executor()->runner();
  options.deadline = deadline;
  const Answering answering = run.in_steps() ? Answering::kInSteps : Answering::kAtTheEnd;
  if (!pass->prepare(options, from.incarnation, answering, answer)) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("worker '%s' has been asked to take part in this backward pass "
                                   "before",
                                   services_.self().name));
  }
  cancellation.notify([weak = std::weak_ptr<BackwardPass>(pass)] {
    if (const auto running = weak.lock()) {
      running->abandon(make_error(absl::CancelledError("the pass was given up")));
    }
  });
  BackwardPass::Part part;
  part.live = read_edges(run.live());
  absl::StatusOr<ContextState::Entries> entries = context->entries(part.live);
  if (!entries.ok()) {
    pass->fail(make_error(entries.status()));
    return;
  }
  part.entries = *std::move(entries);
  part.gradients = std::move(gradients);
  pass->begin(std::move(part));
}

void AutogradManager::on_gradients(const WorkerInfo& from, const proto::AutogradDelivery& delivery,
                                   std::vector<EdgeGradients> gradients,
                                   BackwardPass::OnAnswer answer) {
  const PassId id = read_pass(delivery.pass());
  const Answering answering = delivery.in_steps() ? Answering::kInSteps : Answering::kAtTheEnd;
  if (absl::Status member = check_member(from); !member.ok()) throw_error(member);
  const std::shared_ptr<ContextState> context = find(read_context(delivery.pass().context()));
  absl::Status due = check_brings(from, id, answering, part_of(*context, from));
  if (due.ok()) due = context->check_brings(from.incarnation, gradients);
  if (!due.ok()) throw_error(due);
  join(context, id)->deliver(std::move(gradients), answering, std::move(answer));
}

Future<std::string> AutogradManager::on_abort(const WorkerInfo& from, const std::string& body) {
  proto::AutogradAbort abort;
  if (!abort.ParseFromString(body)) {
    throw RpcError(ErrorCode::kInvalidArgument, "the end of a pass cannot be parsed");
  }
  const PassId id = read_pass(abort.pass());
  if (absl::Status member = check_member(from); !member.ok()) throw_error(member);
  const auto context = find_or_null(read_context(abort.pass().context()));
  if (context == nullptr) return make_ready_future(std::string());
  if (absl::Status due = check_aborts(from, id); !due.ok()) throw_error(due);
  // The graph of a failed pass may be destroyed with it: not here.
  Promise<std::string> promise(services_.executor().get());
  Future<std::string> heard = promise.future();
  services_.executor()->post([self = shared_from_this(), context, id, promise] {
    // The pass tells others by `self`.
    try {
      end_failed(context, id);
      promise.try_set_value(std::string());
    } catch (...) {
      promise.try_set_error(std::current_exception());
    }
  });
  return heard;
}

void AutogradManager::end_failed(const std::shared_ptr<ContextState>& context, const PassId& id) {
  const std::shared_ptr<BackwardPass> pass = context->pass();
  if (pass != nullptr && pass->id() == id) pass->fail(make_error(given_up()));
  context->end_pass(id, PassPart::End::kFailed);
}

std::string AutogradManager::on_facts(const WorkerInfo& from,
                                      const proto::AutogradFactsRequest& request) const {
  if (absl::Status member = check_member(from); !member.ok()) throw_error(member);
  const std::shared_ptr<ContextState> context = find(read_context(request.context()));
  std::vector<EdgeId> edges;
  for (const auto& edge : request.edges()) edges.push_back(read_edge(edge));
  proto::AutogradFacts facts;
  for (const Lineage::Fact& fact : context->facts_about(edges))
    write_fact(fact, *facts.add_facts());
  return facts.SerializeAsString();
}

}  // namespace sinew::internal
