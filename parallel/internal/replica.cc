#include "sinew/parallel/internal/replica.h"

#include <torch/nn/module.h>
#include <torch/csrc/distributed/c10d/logger.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/full.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/autograd/context.h"
#include "sinew/groups/internal/c10d_access.h"
#include "sinew/groups/internal/call_order.h"
#include "sinew/parallel/internal/c10d_bridge.h"
#include "sinew/parallel/internal/c10d_reducer.h"
#include "sinew/parallel/internal/context_reducer.h"
#include "sinew/parallel/internal/gradient_hooks.h"
#include "sinew/parallel/internal/group_tensor.h"
#include "sinew/parallel/internal/hook_result.h"
#include "sinew/parallel/internal/module_parts.h"
#include "sinew/parallel/internal/pass_watch.h"
#include "sinew/parallel/internal/sparse_all_reduce.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/thread_context.h"

namespace sinew::parallel::internal {
namespace {

[[noreturn]] void refuse(std::string text) {
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrCat("DistributedDataParallel: ", std::move(text)));
}

/// Calls a hook of ours from LibTorch's reducer.
class HookAdapter final : public c10d::CommHookInterface {
 public:
  /// What the hook returns, a mean over all ranks, is multiplied by `*factor`.
  HookAdapter(ProcessGroup group, CommHook hook, std::shared_ptr<const double> factor)
      : group_(std::move(group)), hook_(std::move(hook)), factor_(std::move(factor)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    return to_c10(mean_of(bucket).then([factor = *factor_, index = bucket.getIndex(),
                                        gradients = bucket.getBuffer()](const at::Tensor& mean) {
      check_hook_result(mean, index, gradients);
      const at::AutoGradMode no_grad(false);
      return factor == 1 ? mean : mean * factor;
    }));
  }
  at::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensor(); }

 private:
  Future<at::Tensor> mean_of(const c10d::GradBucket& bucket) const {
    const at::Tensor& gradients = bucket.getBuffer();
    if (gradients.is_sparse()) {
      // It has no flat form that a hook could do something with.
      return make_ready_future(sparse_all_reduce(group_, gradients).div_(group_.size()));
    }
    return hook_(group_, {bucket.getIndex(), bucket.isLast(), gradients, bucket.getParameters()});
  }

  const ProcessGroup group_;
  const CommHook hook_;
  const std::shared_ptr<const double> factor_;
};

/// In the order in which a backward pass completes them, which is about the reverse of that of the
/// parameters. The limits: first the one for the first bucket, then the one for all others.
Buckets assign(const ModuleParts& parts, const DdpOptions& options, std::vector<bool> sparse) {
  // The first limit holds for the parameters that come last.
  std::vector<at::Tensor> reversed = tensors_of(parts.parameters);
  std::reverse(reversed.begin(), reversed.end());
  std::reverse(sparse.begin(), sparse.end());
  Buckets buckets;
  std::tie(buckets.members, buckets.limits_bytes) = c10d::compute_bucket_assignment_by_size(
      reversed, {options.first_bucket_bytes, options.bucket_bytes}, sparse);
  for (std::vector<std::size_t>& bucket : buckets.members) {
    for (std::size_t& member : bucket) member = reversed.size() - 1 - member;
  }
  return buckets;
}

/// What ranks must be told alike.
std::vector<std::string> describe(const DdpOptions& options) {
  const bool finds = options.unused_parameters == UnusedParameters::kFound;
  const bool copies = options.buffers == BufferSync::kBroadcast;
  return {absl::StrCat("bucket_bytes ", options.bucket_bytes),
          absl::StrCat("first_bucket_bytes ", options.first_bucket_bytes),
          absl::StrCat("unused_parameters ", finds ? "kFound" : "kForbidden"),
          absl::StrCat("buffers ", copies ? "kBroadcast" : "kKept"),
          absl::StrCat(options.comm_hook == nullptr ? "no" : "a", " communication hook")};
}

}  // namespace

struct Replica::Impl {
  /// The thread that has made this, and the call that it served then, if any: handlers of other
  /// calls may run in the same thread, or not.
  class Maker {
   public:
    bool is_caller() const {
      return thread_ == sinew::internal::CollectiveCaller::this_thread() &&
             served_ == served_call() && (served_ == nullptr || !context_.expired());
    }

   private:
    using ThreadContext = sinew::internal::ThreadContext;
    static const ThreadContext* served_call() {
      const std::shared_ptr<const ThreadContext>& context = ThreadContext::current();
      return context == nullptr ? nullptr : context->served();
    }

    const std::uint64_t thread_ = sinew::internal::CollectiveCaller::this_thread();
    const ThreadContext* const served_ = served_call();
    // While it lives, no other one is in its place.
    const std::weak_ptr<const ThreadContext> context_ = ThreadContext::current();
  };

  Impl(std::shared_ptr<torch::nn::Module> a_module, ProcessGroup a_group, DdpOptions some_options);

  std::int64_t next_number() const;
  void make_reducer(std::int64_t number);
  void make_watch(std::int64_t number);
  ContextReducer& context_reducer();
  void make_context_reducer();
  CommHook hook() const;
  void check_caller() const;
  void check_module() const;
  std::vector<at::Tensor> buffers() const;
  std::vector<std::uint32_t> versions() const;
  void begin_forward();
  void check_context(bool in_context) const;
  // What the others do, by a rank without gradients.
  void follow_forward(const JoinRound& round);
  void follow_buckets();
  void leave(const std::exception_ptr& error);
  void compare_after_join();
  JoinRound announce(bool in_context);
  /// Of the reducer that goes on: what means are over.
  void divide_by(int ranks);
  void check_finished() const;

  const std::shared_ptr<torch::nn::Module> module;
  const ProcessGroup group;
  const DdpOptions options;
  const ModuleParts parts;
  const Maker maker;
  // Outlives the hooks, which ask it.
  std::shared_ptr<C10dReducer> reducer;
  // The reducer cannot do without when the unused parameters change.
  std::shared_ptr<c10d::Logger> logger;
  std::shared_ptr<GradientHooks> hooks;
  std::shared_ptr<PassWatch> watch;
  std::shared_ptr<ContextReducer> contexts;
  std::atomic<bool> in_forward{false};
  // Of the parameters, when the running forward() began.
  std::vector<std::uint32_t> versions_before;
  // Makes means over those ranks that have inputs of means over all.
  const std::shared_ptr<double> mean_factor = std::make_shared<double>(1);
  int suspended = 0;
  // The last forward() was one of a step that all ranks do together.
  bool syncs_buffers = true;
  JoinSession* session = nullptr;
  int comparisons_left = 0;

  /// One that all ranks do or leave together, and its progress here.
  struct Step {
    enum class Place { kBeforeForward, kInForward, kAfterForward };
    Place place = Place::kBeforeForward;
    bool in_context = false;
    /// Of passes before it: those of LibTorch's engine, and those of contexts that were kept.
    std::int64_t votes = 0;
    std::int64_t kept = 0;
  };
  std::optional<Step> step;
};

// ---- The start.

Replica::Impl::Impl(std::shared_ptr<torch::nn::Module> a_module, ProcessGroup a_group,
                    DdpOptions some_options)
    : module(std::move(a_module)),
      group(std::move(a_group)),
      options(std::move(some_options)),
      parts((module == nullptr ? refuse("there is no module") : void(), parts_of(*module))) {
  if (!group.valid()) refuse("the process group is empty: this process is not among its ranks");
  if (options.bucket_bytes == 0 || options.first_bucket_bytes == 0) {
    refuse("bucket_bytes and first_bucket_bytes must be positive");
  }
  if (parts.parameters.empty()) {
    refuse("no parameter of the module requires a gradient, so there is nothing to reduce");
  }
  std::vector<std::string> lines = internal::describe(parts);
  for (std::string& option : describe(options)) lines.push_back(std::move(option));
  check_equal_on_all_ranks(group, "modules or options", lines);
  std::vector<at::Tensor> state = tensors_of(parts.parameters);
  for (const at::Tensor& one : tensors_of(parts.fixed_parameters)) state.push_back(one);
  for (const at::Tensor& one : buffers()) state.push_back(one);
  broadcast_all(group, state, 0);
  const std::int64_t number = next_number();
  make_reducer(number);
  make_watch(number);
}

// By rank 0's number, since ranks may have made different numbers of modules on other groups.
std::int64_t Replica::Impl::next_number() const {
  static std::atomic<std::int64_t> modules{0};
  const at::Tensor next = group_tensor(group, at::full({1}, ++modules, at::kLong));
  group.broadcast(next, 0);
  return next.item<std::int64_t>();
}

void Replica::Impl::make_watch(std::int64_t number) {
  PassWatch::Setup setup;
  setup.group = group;
  setup.module = number;
  setup.parameters = parts.parameters;
  setup.unused = options.unused_parameters;
  setup.hooks = hooks;
  setup.reducer = reducer;
  watch = std::make_shared<PassWatch>(std::move(setup));
  hooks->watch(reducer.get(), [seen = watch.get()] { seen->begin(); });
}

void Replica::Impl::make_reducer(std::int64_t number) {
  hooks = std::make_shared<GradientHooks>(parts.parameters);
  const Buckets buckets = assign(parts, options, parts.sparse);
  const c10::DeviceType device = parts.parameters.front().tensor.device().type();
  std::unordered_map<std::size_t, std::string> names;
  for (std::size_t i = 0; i < parts.parameters.size(); ++i) names[i] = parts.parameters[i].name;
  reducer = make_c10d_reducer(tensors_of(parts.parameters), buckets,
                              sinew::internal::c10d_group_of(group, device, number), parts.sparse,
                              options, std::move(names));
  logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  const bool any_sparse =
      std::find(parts.sparse.begin(), parts.sparse.end(), true) != parts.sparse.end();
  if (options.comm_hook != nullptr || any_sparse) {
    reducer->register_comm_hook(std::make_unique<HookAdapter>(group, hook(), mean_factor));
  }
}

CommHook Replica::Impl::hook() const {
  return options.comm_hook == nullptr ? all_reduce_hook() : options.comm_hook;
}

// Made at the first forward() in a context, which all ranks do together.
ContextReducer& Replica::Impl::context_reducer() {
  if (contexts == nullptr) make_context_reducer();
  if (step.has_value()) contexts->meet();
  return *contexts;
}

void Replica::Impl::make_context_reducer() {
  ContextReducer::Setup setup;
  setup.group = sinew::internal::another_group(group);
  setup.parameters = parts.parameters;
  // The gradients of a bucket lie one after the other, so sparse ones are made dense.
  setup.buckets = assign(parts, options, std::vector<bool>(parts.sparse.size())).members;
  setup.hook = hook();
  setup.unused = options.unused_parameters;
  setup.watch = watch;
  contexts = std::make_shared<ContextReducer>(std::move(setup));
  watch->watch_contexts([weak = std::weak_ptr(contexts)] {
    const auto alive = weak.lock();
    return alive != nullptr && alive->runs();
  });
  if (session != nullptr) contexts->set_division(session->options().division);
  contexts->set_session(session);
}

// ---- Forward.

JoinRound Replica::Impl::announce(bool in_context) {
  JoinRound round;
  round.records = at::GradMode::is_enabled();
  round.reduces = round.records && suspended == 0;
  round.in_context = in_context;
  if (session == nullptr) return round;
  round = session->announce(round);
  divide_by(session->options().division == JoinDivision::kInitialWorldSize ? group.size()
                                                                           : round.active);
  return round;
}

void Replica::Impl::divide_by(int ranks) {
  // Where there is no hook, the reducer divides, and takes the number from here.
  constexpr bool kByItsGroupsSize = false;
  reducer->set_forward_pass_work_handle(done_work(at::full({1}, ranks, at::kLong)),
                                        kByItsGroupsSize);
  *mean_factor = static_cast<double>(group.size()) / ranks;
}

void Replica::Impl::check_finished() const {
  if (!reducer->is_unfinished()) return;
  throw RpcError(ErrorCode::kFailedPrecondition,
                 "the last backward pass of a data-parallel module did not end well, so its ranks "
                 "may have parted: make the DistributedDataParallel anew on all ranks");
}

// A mutex lets threads take other turns on each rank, in which nothing else differs.
void Replica::Impl::check_caller() const {
  if (options.callers == Callers::kInOneOrder || !at::GradMode::is_enabled()) return;
  if (group.size() == 1 || maker.is_caller()) return;
  throw RpcError(
      ErrorCode::kFailedPrecondition,
      absl::StrFormat(
          "forward() of a data-parallel module is called by another thread, or in another call "
          "that is served, than made its DistributedDataParallel (rank %d), so nothing says that "
          "its turn is the same on all ranks, and gradients could be means of different batches. "
          "Make one in each thread that trains, with a module and a group of its own, or set "
          "DdpOptions::callers to kInOneOrder where the program calls all ranks in one order",
          group.rank()));
}

// Gradients of what was not there would not be reduced.
void Replica::Impl::check_module() const {
  hooks->check_attached();
  const std::string changes =
      changes_since(parts, *module, options.unused_parameters == UnusedParameters::kForbidden);
  if (changes.empty()) return;
  throw RpcError(
      ErrorCode::kFailedPrecondition,
      absl::StrFormat("parameters of a data-parallel module are no longer those that its "
                      "DistributedDataParallel was made with (rank %d): %s. Make it anew on all "
                      "ranks after such changes",
                      group.rank(), changes));
}

// A backward pass may still have the running statistics of normalisations, which do not use them
// then and change them without a word themselves: LibTorch must not take this for a change either.
std::vector<at::Tensor> Replica::Impl::buffers() const {
  std::vector<at::Tensor> all;
  for (const NamedTensor& one : parts.buffers) {
    const bool is_statistic =
        absl::EndsWith(one.name, "running_mean") || absl::EndsWith(one.name, "running_var");
    all.push_back(is_statistic ? one.tensor.variable_data() : one.tensor);
  }
  return all;
}

std::vector<std::uint32_t> Replica::Impl::versions() const {
  std::vector<std::uint32_t> all;
  all.reserve(parts.parameters.size());
  for (const NamedTensor& one : parts.parameters) {
    all.push_back(static_cast<std::uint32_t>(one.tensor._version()));
  }
  return all;
}

Replica::Replica(std::shared_ptr<torch::nn::Module> module, ProcessGroup group, DdpOptions options)
    : impl_(std::make_unique<Impl>(std::move(module), std::move(group), std::move(options))) {}

Replica::~Replica() = default;

const ProcessGroup& Replica::group() const { return impl_->group; }

void Replica::before_forward() {
  impl_->check_caller();
  if (impl_->in_forward.exchange(true)) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "two threads call forward() of one DistributedDataParallel at once: one thread "
                   "uses it, since ranks could not tell their passes apart");
  }
  try {
    impl_->begin_forward();
  } catch (...) {
    leave_forward();
    throw;
  }
}

void Replica::leave_forward() { impl_->in_forward = false; }

void Replica::Impl::begin_forward() {
  watch->check_idle();
  if (at::GradMode::is_enabled()) {
    watch->settle_failed_pass();
    check_module();
  }
  const bool in_context = autograd::Context::current_or_none().has_value();
  check_context(in_context);
  const JoinRound round = announce(in_context);
  if (round.reduces) {
    compare_after_join();
    check_finished();
    reducer->prepare_for_forward();
    if (in_context) context_reducer();
  }
  if (round.records) reducer->rebuild_buckets();
  if (syncs_buffers && options.buffers == BufferSync::kBroadcast) {
    broadcast_all(group, buffers(), round.root);
  }
  if (step.has_value()) {
    // Once in a step: who leaves it need not follow.
    syncs_buffers = false;
    if (round.reduces) step->place = std::max(step->place, Step::Place::kInForward);
  }
  versions_before = versions();
}

void Replica::after_forward(const std::optional<std::vector<at::Tensor>>& outputs) {
  const bool finds = impl_->options.unused_parameters == UnusedParameters::kFound;
  if (finds && !outputs.has_value()) {
    refuse(
        "unused parameters cannot be found, since the type that forward() returns is not known: "
        "return tensors, or vectors, arrays, tuples, pairs, optionals or maps of them");
  }
  // On each rank by its own inputs, perhaps.
  if (impl_->versions() != impl_->versions_before) impl_->watch->doubt();
  impl_->syncs_buffers = at::GradMode::is_enabled() && impl_->suspended == 0;
  if (!at::GradMode::is_enabled()) return;
  if (impl_->suspended > 0) return impl_->reducer->expect_none();
  const bool in_context =
      impl_->contexts != nullptr && sinew::internal::reduce_in_current_context(impl_->contexts);
  impl_->watch->expect(outputs.value_or(std::vector<at::Tensor>()), in_context);
  if (impl_->step.has_value()) impl_->step->place = Impl::Step::Place::kAfterForward;
}

// ---- Around steps.

void Replica::suspend_sync() { ++impl_->suspended; }
void Replica::resume_sync() { --impl_->suspended; }

void Replica::sync_buffers() { broadcast_all(impl_->group, impl_->buffers(), 0); }

void Replica::zero_grad() {
  const at::AutoGradMode no_grad(false);
  for (const NamedTensor& one : impl_->parts.parameters) {
    if (one.tensor.grad().defined()) at::Tensor(one.tensor.grad()).zero_();
  }
}

// ---- Steps that all ranks do or leave together.

void Replica::begin_step() {
  if (impl_->step.has_value() || impl_->session != nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   absl::StrCat("step_together() of a data-parallel module is called in ",
                                impl_->step.has_value() ? "a step of it" : "join()",
                                ", where ranks that leave a step cannot be followed"));
  }
  impl_->watch->settle_failed_pass();
  Impl::Step step;
  if (impl_->contexts != nullptr) {
    impl_->contexts->await_end();
    step.kept = impl_->contexts->kept();
  }
  step.in_context = autograd::Context::current_or_none().has_value();
  step.votes = impl_->watch->votes();
  impl_->watch->begin_step(step.in_context);
  impl_->step = step;
}

void Replica::end_step() {
  impl_->watch->end_step();
  impl_->step.reset();
}

// Ranks that leave count on one kind of pass.
void Replica::Impl::check_context(bool in_context) const {
  if (!step.has_value() || !at::GradMode::is_enabled() || step->in_context == in_context) return;
  throw RpcError(ErrorCode::kFailedPrecondition,
                 "forward() of a data-parallel module is called in another autograd context than "
                 "its step_together() was: make the context before the step, not in it");
}

void Replica::leave_step(const std::exception_ptr& error) {
  if (impl_->group.size() == 1) return;
  // The others may have gone on where this rank has not, as in an optimizer's step.
  impl_->watch->doubt();
  try {
    impl_->leave(error);
  } catch (const std::exception&) {
    return;  // What all ranks have heard.
  }
}

void Replica::Impl::leave(const std::exception_ptr& error) {
  using Place = Step::Place;
  if (step->place == Place::kBeforeForward) {
    JoinRound round;
    round.records = true;
    round.reduces = suspended == 0;
    round.in_context = step->in_context;
    follow_forward(round);
    if (!round.reduces) return;
  }
  if (step->place == Place::kInForward) syncs_buffers = true;
  if (step->in_context) {
    if (step->place < Place::kAfterForward) return context_reducer().leave(error);
    // A pass that has begun ends by itself.
    sinew::internal::fail_in_current_context(error);
    if (contexts->kept() > step->kept) contexts->leave_behind_pass();
    return;
  }
  // A pass that has begun says so by itself.
  if (watch->votes() > step->votes) return;
  follow_buckets();
  reducer->expect_none();
  watch->leave(sinew::internal::describe(error).message);
}

// ---- Uneven inputs.

void Replica::enter_join(JoinSession* session) {
  impl_->session = session;
  if (impl_->contexts == nullptr) return;
  impl_->contexts->set_division(session->options().division);
  impl_->contexts->set_session(session);
}

void Replica::leave_join() {
  impl_->session = nullptr;
  impl_->divide_by(impl_->group.size());
  if (impl_->contexts == nullptr) return;
  impl_->contexts->set_division(JoinDivision::kInitialWorldSize);
  impl_->contexts->set_session(nullptr);
}

void Replica::Impl::follow_forward(const JoinRound& round) {
  if (round.reduces) compare_after_join();
  if (round.reduces && round.in_context) context_reducer();
  if (round.records) reducer->rebuild_buckets();
  if (syncs_buffers && options.buffers == BufferSync::kBroadcast) {
    broadcast_all(group, buffers(), round.root);
  }
  syncs_buffers = round.reduces;
  if (round.reduces) watch->skip_call();
}

// Of a pass of LibTorch's engine.
void Replica::Impl::follow_buckets() {
  for (const auto& one : reducer->reduce_zeros(0)) one->waitAndThrow();
  reducer->push_rebuilt_params_for_all_indices();
}

// What before_forward() and the backward pass of the others do.
void Replica::shadow(const JoinRound& round) {
  if (round.agrees) return impl_->context_reducer().shadow_largest();
  impl_->follow_forward(round);
  if (!round.reduces) return;
  if (round.in_context) return impl_->context_reducer().shadow();
  impl_->follow_buckets();
  impl_->watch->shadow();
}

void Replica::finish_join(int root) {
  std::vector<at::Tensor> state = tensors_of(impl_->parts.parameters);
  for (const at::Tensor& one : impl_->buffers()) state.push_back(one);
  broadcast_all(impl_->group, state, root);
  // What optimizers have learned on the way is not the same, and tells in their first steps.
  impl_->comparisons_left = 3;
}

void Replica::Impl::compare_after_join() {
  if (comparisons_left == 0) return;
  --comparisons_left;
  check_same_values(group, parts.parameters);
}

}  // namespace sinew::parallel::internal
