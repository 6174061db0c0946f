#include "sinew/autograd/internal/backward_pass.h"

#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/autograd/internal/node_hooks.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

using torch::autograd::variable_list;

namespace {

// Gradients of the roots are the first to be there.
constexpr MessageName kRootsName{{~std::uint64_t{0}, ~std::uint64_t{0}}, MessageName::Kind::kReply};

/// What a message to this worker itself would do.
void move_to_targets(EdgeGradients& gradients) {
  for (std::size_t i = 0; i < gradients.gradients.size(); ++i) {
    at::Tensor& gradient = gradients.gradients[i];
    if (gradient.defined()) gradient = gradient.to(gradients.targets.at(i));
  }
}

EdgeGradients to_edges(LocalBackward::Outgoing& out) {
  EdgeGradients gradients{{out.node->message(), std::move(out.indexes)}, std::move(out.gradients)};
  for (const std::uint32_t index : gradients.edges.indexes) {
    gradients.targets.push_back(out.node->origin(index));
  }
  return gradients;
}

absl::Status unexpected(std::uint64_t message) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "gradients came for edges of message %d that the pass does not expect any for", message));
}

}  // namespace

BackwardPass::BackwardPass(PassNetwork& network, std::shared_ptr<ContextState> context, PassId id)
    : network_(network),
      context_(std::move(context)),
      id_(id),
      part_(id, context_->self().incarnation) {}

PassOptions BackwardPass::options() const {
  MutexLock lock(mutex_);
  return options_;
}

bool BackwardPass::prepare(const PassOptions& options, std::optional<Incarnation> requester,
                           Answering answering, OnAnswer& on_answer) {
  MutexLock lock(mutex_);
  if (part_.is_prepared()) return false;
  options_ = options;
  Todo todo = look_up(part_.prepare(requester, answering, store(std::move(on_answer))));
  lock.unlock();
  carry_out(todo);
  return true;
}

void BackwardPass::begin(Part part) {
  PassPart::Plan plan;
  std::vector<EdgeGradients> arrivals = std::move(part.gradients);
  try {
    if (!part.roots.empty()) {
      part.entries.emplace(PassPart::kRoots,
                           LocalBackward::Entry{kRootsName, std::move(part.roots)});
      arrivals.push_back({{PassPart::kRoots, {}}, std::move(part.root_gradients)});
    }
    for (const auto& [entry, from] : part.entries) plan.entries.insert(entry);
    local_.emplace(std::move(part.entries), context_->id(), options().graph);
    reductions_ = begin_reductions();
  } catch (...) {
    fail(named(std::current_exception()));
    return;
  }
  plan.reduces = !reductions_.empty();
  for (MessageEdges& edges : part.live) live_.emplace(edges.message, std::move(edges.indexes));
  for (auto& [worker, live] : part.ask) plan.ask.insert(worker);
  for (auto& [worker, live] : part.ask_later) plan.ask_later.insert(worker);
  live_of_others_ = std::move(part.ask);
  live_of_others_.merge(part.ask_later);
  MutexLock lock(mutex_);
  if (part_.has_ended()) {
    lock.unlock();
    return reductions_.fail(make_error(absl::AbortedError("the pass failed before it began")));
  }
  Todo todo = look_up(part_.begin(std::move(plan), store(std::move(arrivals))));
  lock.unlock();
  carry_out(todo);
}

PassReductions BackwardPass::begin_reductions() const {
  return PassReductions(context_->take_reducers(), [this](const at::Tensor& leaf) {
    return LeafReducer::Leaf{local_->reaches(leaf), context_->gradient_of(leaf)};
  });
}

void BackwardPass::deliver(std::vector<EdgeGradients> gradients, Answering answering,
                           OnAnswer on_answer) {
  MutexLock lock(mutex_);
  Todo todo =
      look_up(part_.deliver(store(std::move(gradients)), answering, store(std::move(on_answer))));
  lock.unlock();
  carry_out(todo);
}

void BackwardPass::on_answer(Incarnation worker, std::exception_ptr error, PartAnswer answer) {
  if (error != nullptr) return fail(std::move(error));
  MutexLock lock(mutex_);
  Todo todo = look_up(part_.on_answer(worker, store(std::move(answer.gradients)), answer.waits));
  lock.unlock();
  carry_out(todo);
}

void BackwardPass::fail(std::exception_ptr error) {
  MutexLock lock(mutex_);
  if (part_.has_ended()) return;
  failure_ = std::move(error);
  Todo todo = look_up(part_.fail());
  // Destroyed without the lock, as what tensors hold may be anything.
  todo.arrivals = take_all();
  lock.unlock();
  carry_out(todo);
}

void BackwardPass::abandon(std::exception_ptr error) {
  fail(std::move(error));
  context_->end_pass(id_, PassPart::End::kFailed);
}

// ---- Numbers, and what they stand for.

PassPart::Parcels BackwardPass::store(std::vector<EdgeGradients> gradients) {
  PassPart::Parcels parcels;
  parcels.reserve(gradients.size());
  for (EdgeGradients& one : gradients) {
    parcels.push_back({one.edges.message, static_cast<std::uint32_t>(parcels_.size())});
    parcels_.push_back(std::move(one));
  }
  return parcels;
}

PassPart::Waiter BackwardPass::store(OnAnswer on_answer) {
  waiters_.push_back(std::move(on_answer));
  return static_cast<PassPart::Waiter>(waiters_.size() - 1);
}

std::vector<EdgeGradients> BackwardPass::take(const PassPart::Parcels& parcels) {
  std::vector<EdgeGradients> gradients;
  gradients.reserve(parcels.size());
  for (const PassPart::Parcel& parcel : parcels) {
    gradients.push_back(std::move(parcels_[parcel.slot]));
  }
  return gradients;
}

std::vector<EdgeGradients> BackwardPass::take_all() {
  std::vector<EdgeGradients> gradients(std::make_move_iterator(parcels_.begin()),
                                       std::make_move_iterator(parcels_.end()));
  parcels_.clear();
  return gradients;
}

std::vector<BackwardPass::OnAnswer> BackwardPass::take(
    const std::vector<PassPart::Waiter>& waiters) {
  std::vector<OnAnswer> result;
  result.reserve(waiters.size());
  for (const PassPart::Waiter waiter : waiters) {
    result.push_back(std::move(waiters_[waiter]));
  }
  return result;
}

BackwardPass::Todo BackwardPass::look_up(PassPart::Actions said) {
  Todo todo(std::move(said));
  const PassPart::Actions& actions = todo.actions;
  todo.sends.reserve(actions.sends.size());
  for (const PassPart::Send& one : actions.sends) todo.sends.push_back(take(one.gradients));
  todo.arrivals = take(actions.arrivals);
  todo.answer = take(actions.answer.gradients);
  todo.answered = take(actions.answer.waiters);
  todo.failed = take(actions.failed);
  todo.failure = failure_;
  return todo;
}

// ---- Doing it.

void BackwardPass::carry_out(Todo& todo) {
  for (;;) {
    perform(todo);
    if (!todo.actions.run) return;
    todo = run(std::move(todo.arrivals));
  }
}

void BackwardPass::perform(Todo& todo) {
  const PassPart::Actions& actions = todo.actions;
  if (actions.fault != PassPart::Fault::kNone) fail(fault_of(actions));
  if (actions.commit) commit();
  for (std::size_t i = 0; i < actions.sends.size(); ++i) {
    send(actions.sends[i], std::move(todo.sends[i]));
  }
  if (actions.reduce) reduce();
  // Before others who come too late hear of the end: these hear the reason. The initiator's user
  // hears of it when another pass may begin.
  if (!is_initiator()) tell_failed(todo);
  if (actions.end.has_value()) context_->end_pass(id_, *actions.end);
  undo_reductions(actions.unreduce, todo.failure);
  if (actions.end.has_value() && *actions.end != PassPart::End::kDone) cancellation_.cancel();
  network_.abort(context_, id_, actions.abort);
  // One call is as good as another to bring them.
  for (OnAnswer& one : todo.answered) {
    std::move(one)(nullptr, {std::exchange(todo.answer, {}), actions.answer.waits});
  }
  tell_failed(todo);
}

void BackwardPass::tell_failed(Todo& todo) const {
  std::vector<OnAnswer> failed = std::exchange(todo.failed, {});
  if (failed.empty()) return;
  if (todo.failure == nullptr) {
    // The initiator ends the pass here when it has heard of the failure, or the context does.
    todo.failure = make_error(absl::AbortedError(
        absl::StrFormat("this backward pass has ended at worker '%s'", context_->self().name)));
  }
  for (OnAnswer& one : failed) std::move(one)(todo.failure, {});
}

void BackwardPass::undo_reductions(PassPart::Unreduce what, const std::exception_ptr& failure) {
  switch (what) {
    case PassPart::Unreduce::kNothing:
      return;
    case PassPart::Unreduce::kBegun:
      return reductions_.fail(failure);
    case PassPart::Unreduce::kNeverBegun:
      return PassReductions::fail_all(context_->take_reducers(), failure);
  }
}

std::exception_ptr BackwardPass::fault_of(const PassPart::Actions& actions) const {
  if (actions.fault == PassPart::Fault::kUnexpected) {
    return named(make_error(unexpected(actions.fault_message)));
  }
  return make_error(absl::InternalError("a worker waits for gradients that nothing leads to"));
}

BackwardPass::Todo BackwardPass::run(std::vector<EdgeGradients> arrivals) {
  try {
    Outgoing outgoing = step(std::move(arrivals));
    const auto to_self = outgoing.find(context_->self().incarnation);
    if (to_self != outgoing.end()) {
      for (EdgeGradients& one : to_self->second) move_to_targets(one);
    }
    {
      MutexLock lock(mutex_);
      PassPart::Outgoing parcels;
      for (auto& [worker, gradients] : outgoing) parcels[worker] = store(std::move(gradients));
      Todo todo = look_up(part_.on_ran(std::move(parcels)));
      lock.unlock();
      perform(todo);
    }
    const MutexLock lock(mutex_);
    return look_up(part_.next());
  } catch (...) {
    fail(named(std::current_exception()));
    return {};
  }
}

void BackwardPass::arrive(EdgeGradients arrival) {
  const std::uint64_t message = arrival.edges.message;
  if (message != PassPart::kRoots) {
    const auto found = live_.find(message);
    if (found == live_.end() || found->second != arrival.edges.indexes) {
      throw_error(unexpected(message));
    }
  }
  local_->arrive(message, std::move(arrival.gradients));
}

BackwardPass::Outgoing BackwardPass::step(std::vector<EdgeGradients> arrivals) {
  for (EdgeGradients& arrival : arrivals) arrive(std::move(arrival));
  LocalBackward::Early early;
  early.send = [this](Incarnation worker, std::vector<LocalBackward::Outgoing>& gradients,
                      const std::set<Incarnation>& receivers) {
    return send_early(worker, gradients, receivers);
  };
  early.in_pieces = [this](Incarnation worker) {
    MutexLock lock(mutex_);
    return part_.may_leave_in_pieces(worker);
  };
  add_reductions(early);
  Outgoing outgoing;
  for (LocalBackward::Outgoing& out : local_->run(early)) {
    outgoing[out.node->sender().incarnation].push_back(to_edges(out));
  }
  return outgoing;
}

void BackwardPass::add_reductions(LocalBackward::Early& early) const {
  if (reductions_.empty()) return;
  early.takes_leaf = [this](const at::Tensor& leaf) { return reductions_.has(leaf); };
  early.on_leaf = [this](const at::Tensor& leaf, at::Tensor gradient) {
    reductions_.on_gradient(leaf, std::move(gradient));
  };
}

void BackwardPass::reduce() {
  reductions_.finish().on_done(
      [self = shared_from_this()](const Future<PassReductions::Reduced>& done) {
        self->options().runner->post([self, done] {
          try {
            self->reduced_ = done.value();
          } catch (...) {
            return self->fail(self->named(std::current_exception()));
          }
          self->after_reduction();
        });
      });
}

void BackwardPass::after_reduction() {
  try {
    MutexLock lock(mutex_);
    Todo todo = look_up(part_.on_reduced());
    lock.unlock();
    perform(todo);
  } catch (...) {
    return fail(named(std::current_exception()));
  }
  MutexLock lock(mutex_);
  Todo todo = look_up(part_.next());
  lock.unlock();
  carry_out(todo);
}

void BackwardPass::commit() {
  std::vector<LocalBackward::Leaf> leaves = local_->take_leaves();
  // For the hooks behind; the table may take the gradients' memory.
  std::vector<std::pair<std::shared_ptr<torch::autograd::Node>, at::Tensor>> hooked;
  for (const LocalBackward::Leaf& leaf : leaves) {
    if (!leaf.node->post_hooks().empty()) hooked.emplace_back(leaf.node, leaf.gradient);
  }
  // If the pass was ended meanwhile, that has been reported already.
  if (!context_->commit(id_, leaves, reductions_, reduced_)) {
    throw_error(absl::AbortedError("the pass was ended while it ran"));
  }
  for (auto& [node, gradient] : hooked) run_post_hooks(*node, {}, {gradient});
}

bool BackwardPass::send_early(Incarnation worker, std::vector<LocalBackward::Outgoing>& gradients,
                              const std::set<Incarnation>& receivers) {
  MutexLock lock(mutex_);
  PassPart::Parcels parcels;
  parcels.reserve(gradients.size());
  auto number = static_cast<std::uint32_t>(parcels_.size());
  for (const LocalBackward::Outgoing& out : gradients) {
    parcels.push_back({out.node->message(), number++});
  }
  std::optional<PassPart::Actions> actions = part_.on_early(worker, parcels, receivers);
  if (!actions.has_value()) return false;
  for (LocalBackward::Outgoing& out : gradients) parcels_.push_back(to_edges(out));
  Todo todo = look_up(*std::move(actions));
  lock.unlock();
  perform(todo);
  return true;
}

void BackwardPass::send(const PassPart::Send& to, std::vector<EdgeGradients> gradients) {
  const auto self = shared_from_this();
  if (to.kind == PassPart::Send::Kind::kBring) {
    return network_.bring(self, to.worker, std::move(gradients), to.answering);
  }
  network_.ask(self, to.worker, live_of_others_.at(to.worker), std::move(gradients), to.answering);
}

std::string BackwardPass::describe_wait() const {
  MutexLock lock(mutex_);
  std::vector<std::string> waits;
  if (part_.missing() > 0) {
    waits.push_back(absl::StrFormat(
        "no gradients have arrived for %d of the messages with tensors that this worker has sent",
        part_.missing()));
  }
  switch (part_.wait()) {
    case PassPart::Wait::kBegin:
      return "it was still looking for the workers that take part";
    case PassPart::Wait::kGraph:
      return "it was running";
    case PassPart::Wait::kReduction:
      waits.push_back("the gradients of the other processes of a data-parallel module");
      break;
    case PassPart::Wait::kOthers:
      if (part_.outstanding() > 0) {
        waits.push_back(absl::StrCat(part_.outstanding(), " answers of other workers"));
      }
      break;
  }
  return absl::StrCat("it waited: ", absl::StrJoin(waits, "; "));
}

// What a node or a hook of this worker threw.
std::exception_ptr BackwardPass::named(const std::exception_ptr& error) const {
  ErrorInfo info = describe(error);
  info.message =
      absl::StrFormat("backward pass in context %s failed at worker '%s': %s",
                      autograd::to_string(context_->id()), context_->self().name, info.message);
  info.peer = context_->self().name;
  info.execution = Execution::kMayHaveRun;
  return make_error(std::move(info));
}

}  // namespace sinew::internal
