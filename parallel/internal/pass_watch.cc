#include "sinew/parallel/internal/pass_watch.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/autograd/context.h"
#include "sinew/parallel/internal/group_tensor.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel::internal {
namespace {

using sinew::internal::MutexLock;

void at_the_end_of_this_pass(std::function<void()> callback) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(callback));
}

[[noreturn]] void refuse_pass_of_context(std::int64_t call) {
  throw RpcError(
      ErrorCode::kFailedPrecondition,
      absl::StrFormat("a backward pass of an autograd context has reached call %d of forward() of "
                      "a data-parallel module, whose gradients it would not reduce, since it is "
                      "not the first one after it, or the context is younger: make the context "
                      "before forward(), and do one pass of the sum of all losses",
                      call));
}

}  // namespace

/// Goes with the pass, also when that fails and nothing at its end runs.
struct PassWatch::Ending {
  Ending(std::weak_ptr<PassWatch> a_watch, std::int64_t a_pass)
      : watch(std::move(a_watch)), pass(a_pass) {}
  ~Ending() {
    if (const auto alive = watch.lock()) alive->forget_pass(pass);
  }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  const std::weak_ptr<PassWatch> watch;
  const std::int64_t pass;
};

struct PassWatch::Votes {
  at::Tensor words;
  std::optional<Future<void>> done;
  // What this rank's own vote is due to.
  std::string reason;
};

void obey(const ProcessGroup& group, const PassVotes& votes, const std::string& reason,
          const std::vector<NamedTensor>& parameters) {
  if (votes.has_failed() && votes.says_why()) {
    sinew::internal::throw_error(votes.failure(gather_texts(group, reason)));
  }
  const absl::Status verdict = votes.verdict();
  if (!verdict.ok()) sinew::internal::throw_error(verdict);
  if (votes.doubts()) check_same_values(group, parameters);
}

// ---- Forward.

void PassWatch::expect(const std::vector<at::Tensor>& outputs, bool in_context) {
  std::int64_t call = 0;
  {
    MutexLock lock(mutex_);
    call = ++calls_;
  }
  for (const at::Tensor& output : outputs) {
    if (output.grad_fn() == nullptr) continue;
    output.register_hook([weak = weak_from_this(), call, in_context](const at::Tensor&) {
      const auto alive = weak.lock();
      if (alive != nullptr) return alive->on_output(call, in_context);
      const auto* restricted = torch::autograd::get_current_graph_task_exec_info();
      if (restricted != nullptr && !restricted->empty()) return;
      throw RpcError(ErrorCode::kFailedPrecondition,
                     "the DistributedDataParallel whose forward() this backward pass comes from is "
                     "no longer there, so its gradients would not be reduced");
    });
  }
  const bool another_one_is_open = setup_.reducer->expects_gradients();
  arm([&] {
    const bool finds = setup_.unused == UnusedParameters::kFound;
    setup_.reducer->prepare_for_backward(finds ? outputs : std::vector<at::Tensor>());
    if (another_one_is_open) setup_.reducer->forget_unused();
  });
}

void PassWatch::arm(const std::function<void()>& prepare) {
  setup_.hooks->expect();
  prepare();
  for (const std::size_t parameter : setup_.hooks->unreduced()) {
    setup_.reducer->count_as_used(parameter);
  }
}

void PassWatch::skip_call() {
  MutexLock lock(mutex_);
  ++calls_;
}

void PassWatch::check_idle() const {
  MutexLock lock(mutex_);
  if (running_ == 0) return;
  throw RpcError(ErrorCode::kFailedPrecondition,
                 "forward() of a data-parallel module is called while a backward pass of it runs: "
                 "one thread uses it, since ranks could not tell the passes of several apart");
}

void PassWatch::doubt() {
  MutexLock lock(mutex_);
  doubts_ = true;
}

// ---- The pass.

void PassWatch::on_output(std::int64_t call, bool in_context) {
  if (runs_in_context_ != nullptr && runs_in_context_()) return reach(call, in_context);
  const auto* restricted = torch::autograd::get_current_graph_task_exec_info();
  if (restricted != nullptr && !restricted->empty()) {
    // It is to bring the gradients of some tensors alone, which no reducer sees.
    if (in_context && setup_.hooks->are_reached_by_some()) refuse_pass_of_context(call);
    return;
  }
  // A second pass of one forward(), or that of one before the latest: what is there is the mean
  // already, and stays so when it is reduced with the rest.
  if (!setup_.reducer->expects_gradients()) {
    settle_failed_pass();
    arm([this] { setup_.reducer->expect_again(); });
  }
  begin();
  reach(call, in_context);
}

void PassWatch::reach(std::int64_t call, bool in_context) {
  MutexLock lock(mutex_);
  reached_.insert(call);
  may_be_contexts_ = may_be_contexts_ || in_context;
}

void PassWatch::begin() {
  std::int64_t pass = 0;
  {
    MutexLock lock(mutex_);
    if (running_ != 0) return;
    if (expects_context_) {
      throw RpcError(ErrorCode::kFailedPrecondition,
                     "the step of step_together() is in an autograd context, and its pass is not: "
                     "call autograd::backward()");
    }
    pass = running_ = ++passes_;
    reached_.clear();
    may_be_contexts_ = false;
    has_voted_ = false;
  }
  at_the_end_of_this_pass([ending = std::make_shared<Ending>(weak_from_this(), pass)] {
    if (const auto alive = ending->watch.lock()) alive->on_last_gradient();
  });
}

// The gradients of a pass of a context go to the context.
void PassWatch::check_is_none_of_a_context(std::size_t missing) const {
  if (missing < setup_.parameters.size()) return;
  MutexLock lock(mutex_);
  if (reached_.empty()) return;
  if (!may_be_contexts_ && !autograd::Context::current_or_none().has_value()) return;
  refuse_pass_of_context(*reached_.rbegin());
}

// The others wait for the buckets of what is missing here, so these go first. What they have agreed
// on is read when LibTorch's own end of the pass is through, so that the votes take no time of
// their own.
void PassWatch::on_last_gradient() {
  const std::vector<std::size_t> missing = setup_.hooks->missing();
  std::string problem;
  check_is_none_of_a_context(missing.size());
  setup_.reducer->complete(missing);
  if (!missing.empty() && setup_.unused == UnusedParameters::kForbidden) {
    problem = absl::StrFormat(
        "the backward pass brought no gradient for parameters of the data-parallel module: %s. "
        "Leave out what forward() or the loss does not use, or set DdpOptions::unused_parameters "
        "to kFound",
        setup_.hooks->names(missing));
  }
  if (setup_.group.size() == 1) {
    at_the_end_of_this_pass([self = shared_from_this(), problem] {
      self->finish_pass();
      if (!problem.empty()) throw RpcError(ErrorCode::kFailedPrecondition, problem);
    });
    return;
  }
  {
    MutexLock lock(mutex_);
    has_voted_ = true;
  }
  const auto kind = problem.empty() ? PassVote::Kind::kKeep : PassVote::Kind::kIncomplete;
  at_the_end_of_this_pass([self = shared_from_this(), votes = start_votes(kind, problem)] {
    self->finish_pass();
    self->read_votes(*votes);
  });
}

PassVote PassWatch::vote(PassVote::Kind kind) const {
  MutexLock lock(mutex_);
  PassVote own;
  own.kind = kind;
  own.kept = kept_;
  own.module = setup_.module;
  // What forward() returned was nothing in which tensors could be seen.
  own.first_call = reached_.empty() ? calls_ : *reached_.begin();
  own.last_call = reached_.empty() ? calls_ : *reached_.rbegin();
  own.doubts = doubts_;
  // A pass that has failed may be heard of later, but in a step the next one waits for that.
  if (kind == PassVote::Kind::kKeep || in_step_) own.calls = calls_;
  own.sample = sample_of(setup_.parameters, own.last_call);
  return own;
}

std::shared_ptr<PassWatch::Votes> PassWatch::start_votes(PassVote::Kind kind,
                                                         const std::string& reason) {
  auto votes = std::make_shared<Votes>();
  votes->reason = reason;
  {
    MutexLock lock(mutex_);
    ++votes_;
  }
  const ProcessGroup& group = setup_.group;
  votes->words = group_tensor(group, PassVotes::words(group.rank(), group.size(), vote(kind), {}));
  try {
    votes->done = group.all_reduce_async(votes->words);
  } catch (...) {
    votes->done = make_failed_future<void>(std::current_exception());
  }
  return votes;
}

void PassWatch::read_votes(const Votes& votes) {
  const ProcessGroup& group = setup_.group;
  votes.done->wait();
  votes.done->value();
  const PassVotes all(group.size(), votes.words.cpu());
  align(all);
  obey(group, all, votes.reason, setup_.parameters);
  trust();
  MutexLock lock(mutex_);
  ++kept_;
}

void PassWatch::align(const PassVotes& votes) {
  if (!votes.has_failed()) return;
  MutexLock lock(mutex_);
  calls_ = std::max(calls_, votes.calls());
}

void PassWatch::trust() {
  MutexLock lock(mutex_);
  doubts_ = false;
}

void PassWatch::shadow() {
  if (setup_.group.size() == 1) return;
  read_votes(*start_votes(PassVote::Kind::kShadow, ""));
}

void PassWatch::leave(const std::string& reason) {
  read_votes(*start_votes(PassVote::Kind::kFailed, reason));
}

std::int64_t PassWatch::votes() const {
  MutexLock lock(mutex_);
  return votes_;
}

void PassWatch::begin_step(bool in_context) {
  MutexLock lock(mutex_);
  in_step_ = true;
  expects_context_ = in_context;
}

void PassWatch::end_step() {
  MutexLock lock(mutex_);
  in_step_ = expects_context_ = false;
}

void PassWatch::begin_in_context() {
  // It is none of LibTorch's, so its reducer must not wait for gradients in .grad.
  setup_.reducer->expect_none();
  MutexLock lock(mutex_);
  reached_.clear();
  may_be_contexts_ = false;
}

void PassWatch::finish_pass() {
  setup_.hooks->forget_unreduced();
  MutexLock lock(mutex_);
  running_ = 0;
  reached_.clear();
  may_be_contexts_ = false;
}

void PassWatch::forget_pass(std::int64_t pass) {
  {
    MutexLock lock(mutex_);
    if (running_ != pass) return;
    running_ = 0;
    reached_.clear();
    may_be_contexts_ = false;
    if (has_voted_) return;
  }
  give_up();
}

// As passes of contexts do. The others wait for this rank's part of each bucket, and whatever it
// did next in the group would meet one.
void PassWatch::give_up() {
  setup_.reducer->expect_none();
  auto votes = std::make_shared<Votes>();
  try {
    if (setup_.group.size() > 1) {
      reduce_rest();
      votes = start_votes(PassVote::Kind::kThrew, "");
    }
  } catch (...) {
    // The group has failed, as all ranks will hear.
    return;
  }
  MutexLock lock(mutex_);
  given_up_ = std::move(votes);
}

void PassWatch::reduce_rest() {
  try {
    if (const std::optional<std::size_t> started = setup_.reducer->started()) {
      setup_.reducer->reduce_zeros(*started);
    }
  } catch (...) {
    // A hook that fails: the others find this rank elsewhere, rather than not at all.
  }
}

void PassWatch::settle_failed_pass() {
  std::shared_ptr<const Votes> votes;
  {
    MutexLock lock(mutex_);
    votes = std::exchange(given_up_, nullptr);
  }
  if (votes == nullptr) return;
  if (votes->done) {
    votes->done->wait();
    votes->done->value();
    align(PassVotes(setup_.group.size(), votes->words.cpu()));
  }
  setup_.reducer->forget_pass();
}

}  // namespace sinew::parallel::internal
