#include "sinew/optim/distributed_optimizer.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/optim/internal/checkpoint_round.h"
#include "sinew/optim/internal/copy_options.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/optim/internal/optim_manager.h"
#include "sinew/optim/internal/optimizer_parts.h"
#include "sinew/optim/internal/owned_tensors.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rref/remote.h"

namespace sinew::optim {

using internal::Binding;
using internal::BoundParts;
using internal::LocalOptimizer;
using internal::Mutex;
using internal::MutexLock;
using internal::OptimizerGroup;
using internal::OptimizerPart;
using internal::OptimManager;
using internal::OwnedTensors;
using internal::StepAnswer;
using internal::StepMode;
using internal::StepOutcome;

namespace {

RpcError as_rpc_error(const std::exception_ptr& error) {
  return RpcError(internal::describe(error));
}

void note_answer(const StepAnswer& answer, OwnerStep& step) {
  step.updated = answer.updated;
  step.order = answer.order;
  step.version = answer.version;
  if (answer.outcome == StepOutcome::kApplied) {
    step.outcome = OwnerStep::Outcome::kApplied;
    step.error.reset();
    return;
  }
  step.outcome = answer.outcome == StepOutcome::kRefused ? OwnerStep::Outcome::kNotApplied
                                                         : OwnerStep::Outcome::kUnknown;
  ErrorInfo info;
  info.code = static_cast<ErrorCode>(answer.code);
  info.message = internal::printable(answer.error);
  info.peer = step.owner.name;
  info.execution = Execution::kMayHaveRun;
  info.origin = ErrorOrigin::kHandler;
  step.error = RpcError(std::move(info));
}

void note_error(const std::exception_ptr& error, OwnerStep& step) {
  step.error = as_rpc_error(error);
  // What was unknown before the step was repeated stays so, whatever became of the repetition.
  if (step.error->execution() == Execution::kMayHaveRun) {
    step.outcome = OwnerStep::Outcome::kUnknown;
  }
}

}  // namespace

/// Keeps a step repeatable.
struct PartialStep::Ticket {
  Ticket(std::shared_ptr<DistributedOptimizer::Impl> of, std::uint64_t step,
         const autograd::ContextId& in);
  ~Ticket();

  const std::shared_ptr<DistributedOptimizer::Impl> optimizer;
  const std::uint64_t number;
  const autograd::ContextId context;
};

class DistributedOptimizer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  using Ticket = PartialStep::Ticket;

  /// `drawn` is of the optimizer: all handles on it, everywhere, have the same.
  Impl(Worker own, BoundParts bound, std::size_t group_count, std::uint64_t drawn)
      : worker(std::move(own)),
        parts(std::move(bound.parts)),
        binding(bound.binding),
        groups(group_count),
        identity(drawn),
        numbers(OptimManager::of(*WorkerAccess::services(worker))->step_numbers().of(drawn)),
        first_context_(binding == Binding() ? 0 : internal::next_context_serial(worker)) {
    for (const OptimizerPart& part : parts) owners.push_back(part.owner);
  }

  /// All owners know all groups. Throws kInvalidArgument for one that is none.
  const std::vector<OptimizerPart>& parts_with(std::size_t group) const;
  std::shared_ptr<const Ticket> begin_step(const autograd::ContextId& context);
  /// A report in which nothing has been applied.
  StepReport nothing_applied() const;
  struct Sent;
  Sent send_step(const std::shared_ptr<const Ticket>& ticket, StepReport so_far,
                 const CallOptions& options);

  // Constant.
  const Worker worker;
  const std::vector<OptimizerPart> parts;
  const Binding binding;
  const std::size_t groups;
  const std::uint64_t identity;
  const std::shared_ptr<internal::StepNumbers> numbers;
  std::vector<WorkerInfo> owners;

 private:
  struct Gathering;

  void check_context(const autograd::ContextId& context) const;

  // This worker's contexts before it are of parameters as they were.
  const std::uint64_t first_context_;
};

PartialStep::Ticket::Ticket(std::shared_ptr<DistributedOptimizer::Impl> of, std::uint64_t step,
                            const autograd::ContextId& in)
    : optimizer(std::move(of)), number(step), context(in) {}
PartialStep::Ticket::~Ticket() { optimizer->numbers->end(number); }

const std::vector<OptimizerPart>& DistributedOptimizer::Impl::parts_with(std::size_t group) const {
  if (group < groups) return parts;
  throw RpcError(
      ErrorCode::kInvalidArgument,
      absl::StrFormat("there is no group %d: the optimizer has %d, counted from 0", group, groups));
}

// ---- Steps.

/// Collects the owners' answers.
struct DistributedOptimizer::Impl::Gathering {
  Gathering(internal::Executor* executor, StepReport so_far, std::shared_ptr<const Ticket> of)
      : ticket(std::move(of)), promise(executor), report(std::move(so_far)) {}

  void arrived(const Future<StepAnswer>& done, std::size_t part) {
    const std::exception_ptr error = done.error();
    {
      MutexLock lock(mutex);
      if (error == nullptr) {
        note_answer(done.value(), report.owners[part]);
      } else {
        note_error(error, report.owners[part]);
      }
    }
    one_less();
  }
  void one_less() {
    StepReport complete;
    {
      MutexLock lock(mutex);
      if (--missing > 0) return;
      complete = std::move(report);
    }
    finish(std::move(complete));
  }
  void finish(StepReport complete);

  const std::shared_ptr<const Ticket> ticket;
  const Promise<StepReport> promise;
  Mutex mutex;
  // One for whoever sends.
  std::size_t missing ABSL_GUARDED_BY(mutex) = 1;
  StepReport report ABSL_GUARDED_BY(mutex);
};

void DistributedOptimizer::Impl::Gathering::finish(StepReport complete) {
  const RpcError* first = nullptr;
  std::vector<std::string> lines;
  for (const OwnerStep& step : complete.owners) {
    if (step.outcome == OwnerStep::Outcome::kApplied) {
      lines.push_back(absl::StrFormat("applied by '%s'", step.owner.name));
      continue;
    }
    const bool unknown = step.outcome == OwnerStep::Outcome::kUnknown;
    lines.push_back(absl::StrFormat("%s by '%s' (%s)", unknown ? "perhaps applied" : "not applied",
                                    step.owner.name,
                                    step.error ? step.error->message() : "nothing was sent"));
    if (first == nullptr && step.error) first = &*step.error;
  }
  if (first == nullptr) {
    promise.set_value(std::move(complete));
    return;
  }
  ErrorInfo info = first->info();
  info.message = absl::StrFormat("step %d: %s", ticket->number, absl::StrJoin(lines, "; "));
  promise.try_set_error(
      std::make_exception_ptr(PartialStep(std::move(info), std::move(complete), ticket)));
}

std::shared_ptr<const PartialStep::Ticket> DistributedOptimizer::Impl::begin_step(
    const autograd::ContextId& context) {
  return std::make_shared<const Ticket>(shared_from_this(), numbers->begin(), context);
}

StepReport DistributedOptimizer::Impl::nothing_applied() const {
  StepReport report;
  for (const OptimizerPart& part : parts) {
    report.owners.push_back({part.owner, OwnerStep::Outcome::kNotApplied, 0, 0, 0, {}});
  }
  return report;
}

void DistributedOptimizer::Impl::check_context(const autograd::ContextId& context) const {
  if (context.creator == worker.info().incarnation && context.serial < first_context_) {
    throw RpcError(ErrorCode::kAborted,
                   absl::StrFormat("autograd context %s is from before the optimizer was rebound, "
                                   "so its gradients are of other parameters: make a new context "
                                   "and repeat the forward pass",
                                   autograd::to_string(context)));
  }
  // Throws when this worker does not have the context (any more).
  autograd::gradient_of(worker, context, at::Tensor());
}

/// A step that its owners have been asked for.
struct DistributedOptimizer::Impl::Sent {
  Future<StepReport> report() && {
    for (const auto& [part, answer] : answers) {
      answer.on_done([gathering = gathering, part = part](const Future<StepAnswer>& done) {
        gathering->arrived(done, part);
      });
    }
    gathering->one_less();
    return gathering->promise.future();
  }
  /// Waits on the calling thread, which spares the wake-up of another.
  StepReport wait() && {
    while (!answers.empty()) {
      const auto& [part, answer] = answers.back();
      try {
        answer.wait();
      } catch (...) {
        // Its own error is for the report. Otherwise it is the end of the caller's time, and the
        // step stays one that may be under way until all have answered.
        if (!answer.done()) {
          std::move(*this).report();
          throw;
        }
      }
      gathering->arrived(answer, part);
      answers.pop_back();
    }
    gathering->one_less();
    return gathering->promise.future().take();
  }

  std::shared_ptr<Gathering> gathering;
  // By part.
  std::vector<std::pair<std::size_t, Future<StepAnswer>>> answers;
};

DistributedOptimizer::Impl::Sent DistributedOptimizer::Impl::send_step(
    const std::shared_ptr<const Ticket>& ticket, StepReport so_far, const CallOptions& options) {
  check_context(ticket->context);
  // A step that cannot be whole is better not begun. Whether it was is still asked.
  bool is_whole = true;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    OwnerStep& step = so_far.owners[i];
    if (step.outcome == OwnerStep::Outcome::kApplied || parts[i].optimizer.peer().alive()) continue;
    is_whole = false;
    step.error = as_rpc_error(internal::make_error(
        absl::UnavailableError(absl::StrFormat("worker '%s' is lost", parts[i].owner.name)),
        parts[i].owner.name));
  }
  internal::StepRequest request;
  request.context = ticket->context;
  request.id = {worker.info().incarnation.value, ticket->number};
  request.mode = is_whole ? StepMode::kApply : StepMode::kAsk;
  request.live_from = numbers->live_from();
  request.binding = binding;
  const auto executor = WorkerAccess::services(worker)->executor();
  Sent sent;
  sent.gathering = std::make_shared<Gathering>(executor.get(), so_far, ticket);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const OwnerStep::Outcome outcome = so_far.owners[i].outcome;
    const bool is_asked =
        outcome == OwnerStep::Outcome::kUnknown && parts[i].optimizer.peer().alive();
    if (outcome == OwnerStep::Outcome::kApplied || !(is_whole || is_asked)) continue;
    Future<StepAnswer> answer;
    try {
      answer = parts[i].optimizer.with(options).async<&LocalOptimizer::step>(request);
    } catch (...) {
      answer = make_failed_future<StepAnswer>(std::current_exception());
    }
    sent.answers.emplace_back(i, std::move(answer));
  }
  MutexLock lock(sent.gathering->mutex);
  sent.gathering->missing += sent.answers.size();
  return sent;
}

StepReport DistributedOptimizer::step(const autograd::Context& context,
                                      const CallOptions& options) const {
  return step(context.id(), options);
}

StepReport DistributedOptimizer::step(const autograd::ContextId& context,
                                      const CallOptions& options) const {
  Impl& impl = checked();
  return impl.send_step(impl.begin_step(context), impl.nothing_applied(), options).wait();
}

Future<StepReport> DistributedOptimizer::step_async(const autograd::ContextId& context,
                                                    const CallOptions& options) const {
  Impl& impl = checked();
  return impl.send_step(impl.begin_step(context), impl.nothing_applied(), options).report();
}

StepReport DistributedOptimizer::repeat(const PartialStep& step, const CallOptions& options) const {
  Impl& impl = checked();
  if (step.ticket()->optimizer != impl_) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   "the step that is to be repeated is one of another optimizer, or of another "
                   "handle on this one");
  }
  return impl.send_step(step.ticket(), step.report(), options).wait();
}

// ---- Making one.

namespace {

std::vector<ParameterGroup> one_group(std::vector<RRef<at::Tensor>> parameters, Options options) {
  std::vector<ParameterGroup> groups;
  groups.push_back({std::move(parameters), std::move(options)});
  return groups;
}

}  // namespace

DistributedOptimizer::DistributedOptimizer(const Worker& worker,
                                           std::vector<RRef<at::Tensor>> parameters,
                                           Options options, const CallOptions& call)
    : DistributedOptimizer(worker, one_group(std::move(parameters), std::move(options)), call) {}

DistributedOptimizer::DistributedOptimizer(const Worker& worker, std::vector<ParameterGroup> groups,
                                           const CallOptions& call)
    : impl_(std::make_shared<Impl>(worker,
                                   BoundParts{internal::make_parts(worker, groups, call), {}},
                                   groups.size(), random_secret())) {}

DistributedOptimizer DistributedOptimizer::rebind(std::vector<RRef<at::Tensor>> parameters,
                                                  Options options, const CallOptions& call) const {
  return rebind(one_group(std::move(parameters), std::move(options)), call);
}

DistributedOptimizer DistributedOptimizer::rebind(const std::vector<ParameterGroup>& groups,
                                                  const CallOptions& call) const {
  const Impl& impl = checked();
  return DistributedOptimizer(std::make_shared<Impl>(
      impl.worker, internal::rebind_parts(impl.worker, impl.parts, groups, call), groups.size(),
      impl.identity));
}

DistributedOptimizer::Impl& DistributedOptimizer::checked() const {
  if (impl_ == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition, "this DistributedOptimizer is empty");
  }
  return *impl_;
}

const std::vector<WorkerInfo>& DistributedOptimizer::owners() const { return checked().owners; }
std::size_t DistributedOptimizer::group_count() const { return checked().groups; }

// ---- What all owners are asked for.

void DistributedOptimizer::set_learning_rate(double lr, const CallOptions& options) const {
  for (std::size_t group = 0; group < group_count(); ++group) {
    set_learning_rate(group, lr, options);
  }
}

void DistributedOptimizer::set_learning_rate(std::size_t group, double lr,
                                             const CallOptions& options) const {
  internal::call_parts<&LocalOptimizer::set_learning_rate>(checked().parts_with(group), options,
                                                           static_cast<std::uint64_t>(group), lr);
}

void DistributedOptimizer::set_options(std::size_t group, const Options& options,
                                       const CallOptions& call) const {
  options.check();
  const std::vector<OptimizerPart>& parts = checked().parts_with(group);
  std::vector<Peer> owners;
  for (const OptimizerPart& part : parts) owners.push_back(part.optimizer.peer().with(call));
  const auto copies = internal::copy_options(owners, {options});
  std::vector<Future<void>> told;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    told.push_back(internal::start_part<&LocalOptimizer::set_options>(
        parts[i], call, static_cast<std::uint64_t>(group), copies[i].front()));
  }
  internal::throw_if_any_failed(parts, internal::gather(told).take());
}

RRef<Options> DistributedOptimizer::options_at_owner(std::size_t group,
                                                     const CallOptions& call) const {
  return checked().parts_with(group).front().optimizer.with(call).remote<&LocalOptimizer::options>(
      static_cast<std::uint64_t>(group));
}

std::vector<std::uint64_t> DistributedOptimizer::unscale(const autograd::ContextId& context,
                                                         double factor, std::uint64_t operation,
                                                         const CallOptions& options) const {
  return internal::call_parts<&LocalOptimizer::unscale>(checked().parts, options, context, factor,
                                                        operation);
}

std::vector<double> DistributedOptimizer::initial_learning_rates(const CallOptions& options) const {
  // All owners know all groups.
  return checked()
      .parts.front()
      .optimizer.with(options)
      .call<&LocalOptimizer::initial_learning_rates>();
}

void DistributedOptimizer::keep(const std::vector<RRef<at::Tensor>>& tensors,
                                const CallOptions& options) const {
  Impl& impl = checked();
  std::vector<std::pair<const OptimizerPart*, OwnedTensors>> kept;
  for (OwnedTensors& owned : internal::by_owner(tensors, [](std::size_t i) {
         return absl::StrFormat("tensor %d of those to keep", i);
       })) {
    const auto part = std::find_if(
        impl.parts.begin(), impl.parts.end(),
        [&](const OptimizerPart& one) { return one.owner.incarnation == owned.owner.incarnation; });
    if (part == impl.parts.end()) {
      throw RpcError(ErrorCode::kInvalidArgument,
                     absl::StrFormat("tensor %d of those to keep is at worker '%s', which has no "
                                     "parameters of the optimizer",
                                     owned.positions.front(), owned.owner.name));
    }
    kept.emplace_back(&*part, std::move(owned));
  }
  std::vector<Future<void>> told;
  for (const auto& [part, owned] : kept) {
    told.push_back(part->optimizer.with(options).async<&LocalOptimizer::keep>(owned.tensors));
  }
  collect_all(told).wait();
}

Checkpoint DistributedOptimizer::save(const std::string& folder, const SaveOptions& how,
                                      const CallOptions& options) const {
  return save_async(folder, how, options).take();
}

Future<Checkpoint> DistributedOptimizer::save_async(const std::string& folder,
                                                    const SaveOptions& how,
                                                    const CallOptions& options) const {
  const Impl& impl = checked();
  return internal::CheckpointRound(impl.worker, impl.parts, folder, options).save(how);
}

Checkpoint DistributedOptimizer::load(const std::string& folder, const CallOptions& options) const {
  const Impl& impl = checked();
  return internal::CheckpointRound(impl.worker, impl.parts, folder, options).load(std::nullopt);
}

Checkpoint DistributedOptimizer::load(const std::string& folder, std::uint64_t number,
                                      const CallOptions& options) const {
  const Impl& impl = checked();
  return internal::CheckpointRound(impl.worker, impl.parts, folder, options).load(number);
}

}  // namespace sinew::optim

namespace sinew {

using optim::DistributedOptimizer;

void Codec<DistributedOptimizer>::encode(ValueWriter& writer,
                                         const DistributedOptimizer& optimizer) {
  if (!optimizer.valid()) {
    throw RpcError(ErrorCode::kInvalidArgument, "an empty DistributedOptimizer cannot be passed");
  }
  ListWriter list = writer.list(optimizer.impl()->parts.size() + 3);
  list.next().natural(optimizer.impl()->groups);
  list.next().natural(optimizer.impl()->identity);
  ValueWriter binding = list.next();
  Codec<internal::Binding>::encode(binding, optimizer.impl()->binding);
  for (const auto& part : optimizer.impl()->parts) {
    ValueWriter reference = list.next();
    Codec<RRef<internal::LocalOptimizer>>::encode(reference, part.optimizer);
  }
}

DistributedOptimizer Codec<DistributedOptimizer>::decode(const ValueReader& reader) {
  const ListReader list = reader.list();
  if (list.size() < 4) reader.fail("an optimizer has at least one owner");
  const std::uint64_t groups = list.item(0).natural();
  const std::uint64_t identity = list.item(1).natural();
  internal::BoundParts bound;
  bound.binding = Codec<internal::Binding>::decode(list.item(2));
  for (std::size_t i = 3; i < list.size(); ++i) {
    auto reference = Codec<RRef<internal::LocalOptimizer>>::decode(list.item(i));
    if (!reference.valid()) reader.fail("an owner's part is an empty reference");
    bound.parts.push_back({reference.owner(), std::move(reference)});
  }
  const Worker worker = bound.parts.front().optimizer.peer().worker();
  return DistributedOptimizer(
      std::make_shared<DistributedOptimizer::Impl>(worker, std::move(bound), groups, identity));
}

}  // namespace sinew
