// The steps of a DistributedOptimizer.

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/optim/distributed_optimizer.h"
#include "sinew/optim/internal/distributed_optimizer_impl.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rref/remote.h"

namespace sinew::optim {

using internal::LocalOptimizer;
using internal::Mutex;
using internal::MutexLock;
using internal::OptimizerPart;
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

/// Collects the owners' answers.
struct DistributedOptimizer::Impl::Gathering {
  Gathering(internal::Executor* executor, StepReport so_far, std::shared_ptr<const Ticket> of)
      : ticket(std::move(of)), promise(executor), report(std::move(so_far)) {}

  void arrived(const Future<StepAnswer>& done, std::size_t part) {
    const std::exception_ptr error = done.error();
    {
      MutexLock lock(mutex);
      if (error == nullptr) {
        OwnerStep& step = report.owners[part];
        note_answer(done.value(), step);
        if (step.outcome == OwnerStep::Outcome::kApplied) {
          ticket->optimizer->numbers->note_acknowledged(step.owner.incarnation, step.order);
        }
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
  void warn_of_none(const StepReport& complete) const;

  const std::shared_ptr<const Ticket> ticket;
  const Promise<StepReport> promise;
  Mutex mutex;
  // One for the sender.
  std::size_t missing ABSL_GUARDED_BY(mutex) = 1;
  StepReport report ABSL_GUARDED_BY(mutex);
};

// Not an error: an owner's rows may not be in a batch.
void DistributedOptimizer::Impl::Gathering::warn_of_none(const StepReport& complete) const {
  std::vector<std::string> names;
  for (const OwnerStep& step : complete.owners) {
    if (step.updated == 0) names.push_back(absl::StrCat("'", step.owner.name, "'"));
  }
  Impl& optimizer = *ticket->optimizer;
  if (names.empty() || optimizer.has_warned.exchange(true)) return;
  WorkerAccess::services(optimizer.worker)
      ->log(absl::StrFormat(
          "step %d: nothing of owner %s is in the pass: no parameter of the optimizer there has a "
          "gradient in autograd context %s. If one should have: make the autograd::Context before "
          "the calls whose results the loss depends on; those that came before are not in it. This "
          "is said once",
          ticket->number->value(), absl::StrJoin(names, ", "),
          autograd::to_string(ticket->context)));
}

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
    warn_of_none(complete);
    promise.set_value(std::move(complete));
    return;
  }
  ErrorInfo info = first->info();
  info.message =
      absl::StrFormat("step %d: %s", ticket->number->value(), absl::StrJoin(lines, "; "));
  promise.try_set_error(
      std::make_exception_ptr(PartialStep(std::move(info), std::move(complete), ticket)));
}

std::shared_ptr<const PartialStep::Ticket> DistributedOptimizer::Impl::begin_step(
    const autograd::ContextId& context) {
  return std::make_shared<const Ticket>(
      Ticket{shared_from_this(), std::make_shared<const Ticket::Number>(numbers), context});
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
  request.id = {worker.info().incarnation.value, ticket->number->value()};
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

StepReport DistributedOptimizer::Impl::repeat(const PartialStep& step,
                                              const autograd::ContextId& context,
                                              const CallOptions& options) {
  const Ticket& before = *step.ticket();
  if (before.optimizer->identity != identity) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   "the step that is to be repeated is one of another optimizer");
  }
  StepReport so_far = nothing_applied();
  for (OwnerStep& owner : so_far.owners) {
    for (const OwnerStep& known : step.report().owners) {
      if (known.owner.incarnation == owner.owner.incarnation) owner = known;
    }
  }
  const auto ticket =
      std::make_shared<const Ticket>(Ticket{shared_from_this(), before.number, context});
  return send_step(ticket, std::move(so_far), options).wait();
}

}  // namespace sinew::optim
