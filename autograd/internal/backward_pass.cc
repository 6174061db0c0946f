#include "sinew/autograd/internal/backward_pass.h"

#include <algorithm>
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

// The roots enter like a message with this number; those of messages start at 1.
constexpr std::uint64_t kRoots = 0;

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

void answer_all(std::vector<BackwardPass::OnAnswer> on_answer, PartAnswer answer) {
  // One call is as good as another to bring them.
  for (BackwardPass::OnAnswer& one : on_answer) {
    std::move(one)(nullptr, {std::exchange(answer.gradients, {}), answer.waits});
  }
}

/// Adds undefined gradients for the edges of `all` that are missing.
void fill_up(EdgeGradients& arrival, const std::vector<std::uint32_t>& all) {
  if (!std::includes(all.begin(), all.end(), arrival.edges.indexes.begin(),
                     arrival.edges.indexes.end())) {
    return;
  }
  std::vector<at::Tensor> gradients(all.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < all.size() && next < arrival.edges.indexes.size(); ++i) {
    if (all[i] == arrival.edges.indexes[next]) gradients[i] = std::move(arrival.gradients[next++]);
  }
  arrival.edges.indexes = all;
  arrival.gradients = std::move(gradients);
}

/// The other processes of those who would have reduced gradients in a pass that never began must
/// not wait for it.
void fail_reducers(ContextState& context, const std::exception_ptr& error) {
  try {
    const PassReductions none(context.take_reducers(),
                              [](const at::Tensor&) { return LeafReducer::Leaf(); });
    none.fail(error);
  } catch (const std::exception&) {
    return;  // They could not begin, and have told so those that had.
  }
}

}  // namespace

BackwardPass::BackwardPass(PassNetwork& network, std::shared_ptr<ContextState> context, PassId id)
    : network_(network), context_(std::move(context)), id_(id) {}

PassOptions BackwardPass::options() const {
  MutexLock lock(mutex_);
  return options_;
}

bool BackwardPass::prepare(const PassOptions& options, std::optional<Incarnation> requester,
                           Answering answering, OnAnswer& on_answer) {
  std::exception_ptr failure;
  {
    MutexLock lock(mutex_);
    if (prepared_) return false;
    prepared_ = true;
    options_ = options;
    requester_ = requester;
    answering_ = answering;
    failure = failure_;
    if (failure == nullptr) on_answer_.push_back(std::move(on_answer));
  }
  if (failure == nullptr) return true;
  // Its time was over, or its context has ended, since others know of it.
  if (is_initiator()) fail_reducers(*context_, failure);
  std::move(on_answer)(std::move(failure), {});
  return true;
}

void BackwardPass::begin(Part part) {
  try {
    const PassOptions options = this->options();
    if (!part.roots.empty()) part.entries.emplace(kRoots, std::move(part.roots));
    local_.emplace(std::move(part.entries), context_->id(), options.graph);
    if (!part.root_gradients.empty()) local_->arrive(kRoots, std::move(part.root_gradients));
    reductions_ = begin_reductions();
  } catch (...) {
    fail(named(std::current_exception()));
    return;
  }
  for (MessageEdges& edges : part.live) live_.emplace(edges.message, std::move(edges.indexes));
  to_ask_ = std::move(part.ask);
  to_ask_later_ = std::move(part.ask_later);
  for (const auto& [worker, live] : to_ask_later_) in_steps_.insert(worker);
  bool runs = false;
  {
    MutexLock lock(mutex_);
    runs = phase_ == Phase::kNew;
    if (runs) {
      phase_ = Phase::kRunning;
      // Gradients may come to them from those that are asked before them.
      for (const auto& [worker, live] : to_ask_) asked_.push_back(worker);
      for (EdgeGradients& one : part.gradients) arrivals_.push_back(std::move(one));
    }
  }
  if (runs) return pump();
  reductions_.fail(make_error(absl::AbortedError("the pass failed before it began")));
}

PassReductions BackwardPass::begin_reductions() const {
  return PassReductions(context_->take_reducers(), [this](const at::Tensor& leaf) {
    return LeafReducer::Leaf{local_->reaches(leaf), context_->gradient_of(leaf)};
  });
}

void BackwardPass::deliver(std::vector<EdgeGradients> gradients, Answering answering,
                           OnAnswer on_answer) {
  bool ended = false;
  std::exception_ptr failure;
  {
    MutexLock lock(mutex_);
    ended = phase_ == Phase::kEnded;
    failure = failure_;
    if (!ended) {
      for (EdgeGradients& one : gradients) arrivals_.push_back(std::move(one));
      if (answering == Answering::kInSteps) on_answer_.push_back(std::move(on_answer));
    }
  }
  if (answering == Answering::kAtTheEnd) {
    std::move(on_answer)(nullptr, {});
  } else if (ended) {
    // The initiator ends the pass here when it has heard of the failure, or the context does.
    if (failure == nullptr) {
      failure = make_error(absl::AbortedError(
          absl::StrFormat("this backward pass has ended at worker '%s'", context_->self().name)));
    }
    std::move(on_answer)(std::move(failure), {});
  }
  if (!ended) pump();
}

// ---- Running the graph.

bool BackwardPass::take_arrivals(std::vector<EdgeGradients>& arrivals) {
  MutexLock lock(mutex_);
  if (phase_ == Phase::kEnded || (started_ && arrivals_.empty())) {
    pumping_ = false;
    return false;
  }
  started_ = true;
  arrivals.swap(arrivals_);
  return true;
}

void BackwardPass::pump() {
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kRunning || pumping_) return;
    pumping_ = true;
  }
  std::vector<EdgeGradients> arrivals;
  while (take_arrivals(arrivals)) {
    try {
      Outgoing outgoing = step(std::exchange(arrivals, {}));
      const Ask ask = take_to_ask(outgoing);
      send(std::move(outgoing), ask);
    } catch (...) {
      const std::exception_ptr error = named(std::current_exception());
      {
        MutexLock lock(mutex_);
        pumping_ = false;
      }
      fail(error);
      return;
    }
  }
  end_if_done();
}

void BackwardPass::arrive(EdgeGradients arrival) {
  const auto found = live_.find(arrival.edges.message);
  // Nobody has told a FAST pass which tensors of the message are used: zeros come for the others.
  if (found != live_.end() && options().reach == Reach::kFast) {
    fill_up(arrival, found->second);
  }
  if (found == live_.end() || found->second != arrival.edges.indexes) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("gradients came for edges of message %d that the pass does not "
                                   "expect any for",
                                   arrival.edges.message));
  }
  local_->arrive(arrival.edges.message, std::move(arrival.gradients));
}

BackwardPass::Outgoing BackwardPass::step(std::vector<EdgeGradients> arrivals) {
  for (EdgeGradients& arrival : arrivals) arrive(std::move(arrival));
  Outgoing outgoing;
  LocalBackward::Early early;
  early.send = [this](Incarnation worker, std::vector<LocalBackward::Outgoing>& gradients,
                      const std::set<Incarnation>& receivers) {
    return send_early(worker, gradients, receivers);
  };
  early.in_pieces = [this](Incarnation worker) {
    MutexLock lock(mutex_);
    return worker != context_->self().incarnation && requester_ != worker;
  };
  const bool reduces = add_reductions(early);
  for (LocalBackward::Outgoing& out : local_->run(early)) {
    outgoing[out.node->sender().incarnation].push_back(to_edges(out));
  }
  if (!local_->done()) return outgoing;
  if (!reduces) {
    commit({});
    return outgoing;
  }
  MutexLock lock(mutex_);
  reducing_ = Reducing::kNext;
  return outgoing;
}

bool BackwardPass::add_reductions(LocalBackward::Early& early) const {
  if (reductions_.empty()) return false;
  early.takes_leaf = [this](const at::Tensor& leaf) { return reductions_.has(leaf); };
  early.on_leaf = [this](const at::Tensor& leaf, at::Tensor gradient) {
    reductions_.on_gradient(leaf, std::move(gradient));
  };
  return true;
}

// As late as can be: from here on nothing makes the pass fail at this worker but the reduction, so
// that all processes that reduce keep their gradients, or none does.
void BackwardPass::reduce() {
  reductions_.finish().on_done(
      [self = shared_from_this()](const Future<PassReductions::Reduced>& done) {
        self->options().runner->post([self, done] {
          try {
            self->commit(done.value());
          } catch (...) {
            return self->fail(self->named(std::current_exception()));
          }
          {
            MutexLock lock(self->mutex_);
            --self->outstanding_;
          }
          self->end_if_done();
        });
      });
}

void BackwardPass::commit(const PassReductions::Reduced& reduced) {
  std::vector<LocalBackward::Leaf> leaves = local_->take_leaves();
  // For the hooks behind; the table may take the gradients' memory.
  std::vector<std::pair<std::shared_ptr<torch::autograd::Node>, at::Tensor>> hooked;
  for (const LocalBackward::Leaf& leaf : leaves) {
    if (!leaf.node->post_hooks().empty()) hooked.emplace_back(leaf.node, leaf.gradient);
  }
  // False: the pass has failed meanwhile, which somebody deals with.
  if (!context_->commit(id_, leaves, reductions_, reduced)) return;
  for (auto& [node, gradient] : hooked) run_post_hooks(*node, {}, {gradient});
  MutexLock lock(mutex_);
  local_done_ = true;
}

// ---- Other workers.

// Gradients leave before the rest of a step has run, where that takes no further message.
bool BackwardPass::send_early(Incarnation worker, std::vector<LocalBackward::Outgoing>& gradients,
                              const std::set<Incarnation>& receivers) {
  if (worker == context_->self().incarnation) return false;
  const bool last_step = local_->missing().empty();
  bool in_steps = false;
  {
    MutexLock lock(mutex_);
    if (requester_ == worker) {
      // The answer at the end brings those of the last step.
      if (last_step) return false;
      in_steps = answering_ == Answering::kInSteps;
    }
  }
  if (in_steps) return receivers.size() == 1 && answer_early(gradients);
  Outgoing outgoing;
  for (LocalBackward::Outgoing& out : gradients) outgoing[worker].push_back(to_edges(out));
  Ask ask = take_to_ask(outgoing);
  // The others are asked together with their gradients.
  for (const Incarnation other : receivers) {
    if (other == worker) continue;
    if (auto later = ask.extract(other)) to_ask_.insert(std::move(later));
  }
  send(std::move(outgoing), ask);
  return true;
}

// The requester has gradients to bring yet, so another call will ask for the end. The answer has to
// have all that the calls before it lead to: those gradients may depend on it.
bool BackwardPass::answer_early(std::vector<LocalBackward::Outgoing>& gradients) {
  std::vector<OnAnswer> on_answer;
  PartAnswer answer;
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kRunning || outstanding_ > 0 || !arrivals_.empty() || on_answer_.empty()) {
      return false;
    }
    on_answer = std::exchange(on_answer_, {});
    answer.gradients = std::exchange(reply_, {});
  }
  for (LocalBackward::Outgoing& out : gradients) answer.gradients.push_back(to_edges(out));
  answer.waits = true;
  answer_all(std::move(on_answer), std::move(answer));
  return true;
}

BackwardPass::Ask BackwardPass::take_to_ask(const Outgoing& outgoing) {
  Ask ask = std::exchange(to_ask_, {});
  for (const auto& [worker, gradients] : outgoing) {
    if (auto later = to_ask_later_.extract(worker)) ask.insert(std::move(later));
  }
  return ask;
}

void BackwardPass::send(Outgoing outgoing, const Ask& ask) {
  const auto to_self = outgoing.find(context_->self().incarnation);
  if (to_self != outgoing.end()) {
    for (EdgeGradients& one : to_self->second) move_to_targets(one);
  }
  {
    MutexLock lock(mutex_);
    if (phase_ == Phase::kEnded) return;
    if (to_self != outgoing.end()) {
      for (EdgeGradients& one : to_self->second) arrivals_.push_back(std::move(one));
      outgoing.erase(to_self);
    }
    // With the answer, which is due now.
    const bool answers = local_done_ || answering_ == Answering::kInSteps;
    const auto to_requester =
        requester_.has_value() && answers ? outgoing.find(*requester_) : outgoing.end();
    if (to_requester != outgoing.end()) {
      for (EdgeGradients& one : to_requester->second) reply_.push_back(std::move(one));
      outgoing.erase(to_requester);
    }
    for (const auto& [worker, live] : ask) {
      if (in_steps_.count(worker) == 0) continue;
      asked_.push_back(worker);
      unfinished_.insert(worker);
    }
    outstanding_ += static_cast<int>(ask.size());
    for (const auto& [worker, gradients] : outgoing) outstanding_ += ask.count(worker) == 0;
  }
  const auto self = shared_from_this();
  const auto answering_of = [this](Incarnation worker) {
    return in_steps_.count(worker) == 0 ? Answering::kAtTheEnd : Answering::kInSteps;
  };
  for (const auto& [worker, live] : ask) {
    std::vector<EdgeGradients> first;
    if (auto gradients = outgoing.extract(worker)) first = std::move(gradients.mapped());
    network_.ask(self, worker, live, std::move(first), answering_of(worker));
  }
  for (auto& [worker, gradients] : outgoing) {
    network_.bring(self, worker, std::move(gradients), answering_of(worker));
  }
}

void BackwardPass::on_answer(Incarnation worker, std::exception_ptr error, PartAnswer answer) {
  if (error != nullptr) return fail(std::move(error));
  const bool more = !answer.gradients.empty();
  {
    MutexLock lock(mutex_);
    --outstanding_;
    if (!answer.waits) unfinished_.erase(worker);
    for (EdgeGradients& one : answer.gradients) arrivals_.push_back(std::move(one));
  }
  if (more) {
    pump();
  } else {
    end_if_done();
  }
}

// ---- The end.

void BackwardPass::end_if_done() {
  std::vector<OnAnswer> on_answer;
  PartAnswer answer;
  bool unfinished = false;
  bool reduces = false;
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kRunning || pumping_ || outstanding_ > 0 || !arrivals_.empty()) return;
    const bool computed = local_done_ || reducing_ == Reducing::kNext;
    if (!computed && answering_ == Answering::kAtTheEnd) return;
    unfinished = computed && !unfinished_.empty();
    reduces = !unfinished && reducing_ == Reducing::kNext;
    if (reduces) {
      reducing_ = Reducing::kNow;
      ++outstanding_;
    } else if (!unfinished) {
      if (local_done_) phase_ = Phase::kEnded;
      answer = {std::exchange(reply_, {}), !local_done_};
      on_answer = std::exchange(on_answer_, {});
    }
  }
  if (unfinished) {
    // All gradients that there are have been brought to it.
    return fail(
        make_error(absl::InternalError("a worker waits for gradients that nothing leads to")));
  }
  if (reduces) return reduce();
  if (!answer.waits) context_->end_pass(id_, ContextState::PassEnd::kDone);
  answer_all(std::move(on_answer), std::move(answer));
}

void BackwardPass::fail(std::exception_ptr error) {
  std::vector<OnAnswer> on_answer;
  std::vector<Incarnation> asked;
  auto end = ContextState::PassEnd::kFailed;
  bool began = false;
  bool prepared = false;
  {
    MutexLock lock(mutex_);
    if (phase_ == Phase::kEnded) return;
    began = phase_ == Phase::kRunning;
    prepared = prepared_;
    phase_ = Phase::kEnded;
    failure_ = error;
    on_answer = std::exchange(on_answer_, {});
    if (answering_ == Answering::kInSteps && on_answer.empty()) {
      end = ContextState::PassEnd::kFailedUntold;
    }
    asked = asked_;
    arrivals_.clear();
    reply_.clear();
  }
  const auto self = shared_from_this();
  context_->end_pass(id_, end);
  if (began) {
    reductions_.fail(error);
  } else if (prepared || !is_initiator()) {
    fail_reducers(*context_, error);
  }
  cancellation_.cancel();
  // Also those that are through already: what they have added does not count.
  network_.abort(*context_, id_, asked);
  for (OnAnswer& one : on_answer) std::move(one)(error, {});
}

void BackwardPass::abandon(std::exception_ptr error) {
  fail(std::move(error));
  context_->end_pass(id_, ContextState::PassEnd::kFailed);
}

std::string BackwardPass::describe_wait() const {
  MutexLock lock(mutex_);
  if (phase_ == Phase::kNew) return "it was still looking for the workers that take part";
  if (pumping_ || !local_.has_value()) return "it was running";
  std::vector<std::string> waits;
  const std::vector<std::uint64_t> missing = local_->missing();
  if (!missing.empty()) {
    waits.push_back(absl::StrFormat(
        "no gradients have come for %d of the messages with tensors that this worker has sent (is "
        "a result not used? then SMART mode is needed)",
        missing.size()));
  }
  if (reducing_ == Reducing::kNow) {
    waits.push_back("the gradients of the other processes of a data-parallel module");
  } else if (outstanding_ > 0) {
    waits.push_back(absl::StrCat(outstanding_, " answers of other workers"));
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
