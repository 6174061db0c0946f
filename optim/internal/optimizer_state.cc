#include "sinew/optim/internal/optimizer_state.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/autograd/context.h"
#include "sinew/optim/internal/options_model.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {

OptimizerState::OptimizerState(const Worker& worker, const std::vector<OptimizerGroup>& groups)
    : manager_(OptimManager::of(*WorkerAccess::services(worker))),
      name_(worker.name()),
      answers_([worker](Incarnation trainer) {
        WorkerInfo info;
        info.incarnation = trainer;
        return WorkerAccess::services(worker)->is_lost(info);
      }) {
  if (groups.empty()) {
    throw RpcError(ErrorCode::kInvalidArgument, "an optimizer needs a group of parameters");
  }
  absl::flat_hash_set<const void*> seen;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    options_.push_back(groups[group].options.local_value());
    options_.back().check();
    initial_rates_.push_back(options_.back().learning_rate());
    for (std::size_t i = 0; i < groups[group].parameters.size(); ++i) {
      OptimizedParameter parameter;
      parameter.group = group;
      parameter.label =
          absl::StrFormat("parameter %d of group %d at worker '%s'", i, group, worker.name());
      parameter.tensor = groups[group].parameters[i].local_value();
      parameter.check();
      const void* key = parameter.tensor.unsafeGetTensorImpl();
      if (!seen.insert(key).second) {
        throw RpcError(ErrorCode::kInvalidArgument,
                       absl::StrCat(parameter.label, " is in the optimizer twice: ", kTiedOnce));
      }
      keys_.push_back(key);
      parameter.shadow = parameter.tensor.variable_data();
      parameters_.push_back(std::move(parameter));
    }
  }
  // The optimizer itself, for one that has no parameters.
  keys_.push_back(this);
  optimizer_ = make_optimizer(options_);
  manager_->add_optimizers(1);
}

OptimizerState::~OptimizerState() {
  manager_->add_optimizers(-1);
  manager_->add_step_answers(-static_cast<std::int64_t>(answers_.size()));
}

std::string OptimizerState::name() const {
  MutexLock lock(mutex_);
  return name_;
}

std::unique_ptr<TorchOptimizer> OptimizerState::make_optimizer(
    const std::vector<optim::Options>& options) const {
  std::vector<TorchOptimizer::Group> groups(options.size());
  for (std::size_t i = 0; i < options.size(); ++i) groups[i].options = options[i];
  for (const OptimizedParameter& parameter : parameters_) {
    groups[parameter.group].parameters.push_back(parameter.shadow);
  }
  return std::make_unique<TorchOptimizer>(groups);
}

// ---- Steps.

Future<StepAnswer> OptimizerState::step(const Worker& worker, const StepRequest& request,
                                        Clock::TimePoint deadline) {
  const std::size_t remembered = answers_.size();
  std::optional<StepAnswer> answer = answers_.find(request);
  if (!answer) {
    answer = step_once(worker, request, deadline);
    if (answer->outcome != StepOutcome::kRefused) answers_.add(request.id, *answer);
  }
  count_answers(remembered);
  const Future<void> there = mirrored();
  // What has changed nothing is the same with and without a standby.
  const bool is_known = there.done() && there.error() == nullptr;
  if (is_known || answer->outcome == StepOutcome::kRefused) {
    return make_ready_future(*std::move(answer));
  }
  return there.then([answer = *answer] { return answer; });
}

void OptimizerState::count_answers(std::size_t before) {
  manager_->add_step_answers(static_cast<std::int64_t>(answers_.size()) -
                             static_cast<std::int64_t>(before));
}

StepAnswer OptimizerState::step_once(const Worker& worker, const StepRequest& request,
                                     Clock::TimePoint deadline) {
  const std::uint64_t number = request.id.number;
  if (following_ && !following_->has_taken_over) {
    return refused(ErrorCode::kFailedPrecondition,
                   absl::StrFormat("worker '%s' is a standby that has not taken over: see "
                                   "sinew::optim::take_over()",
                                   worker.name()));
  }
  if (mirror_ != nullptr && mirror_->is_superseded()) {
    return refused(ErrorCode::kAborted,
                   absl::StrFormat("step %d is of an owner whose standby has taken over: use the "
                                   "optimizer that sinew::optim::take_over() has returned",
                                   number));
  }
  if (!(request.binding == binding_)) {
    return refused(ErrorCode::kAborted,
                   absl::StrFormat("step %d is of an optimizer that was rebound meanwhile: use the "
                                   "one that DistributedOptimizer::rebind() has returned",
                                   number));
  }
  if (WorkerAccess::services(worker)->clock().now() > deadline) {
    // The trainer has stopped waiting. Better not applied than applied in secret: it can repeat it.
    return refused(ErrorCode::kDeadlineExceeded,
                   absl::StrFormat("step %d had to wait for others at worker '%s' until its time "
                                   "was over",
                                   number, worker.name()));
  }
  return apply(worker, request);
}

StepAnswer OptimizerState::apply(const Worker& worker, const StepRequest& request) {
  if (!broken_.empty()) {
    return refused(ErrorCode::kFailedPrecondition,
                   absl::StrCat("an earlier step failed half-way: ", broken_,
                                "; load a checkpoint or make the optimizer anew"));
  }
  autograd::Gradients gradients;
  try {
    gradients = autograd::gradients(worker, request.context);
  } catch (const RpcError& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    if (has_ended(worker, request.context, Incarnation{request.id.trainer})) {
      return refused(ErrorCode::kNotFound,
                     absl::StrFormat("autograd context %s has ended before step %d",
                                     autograd::to_string(request.context), request.id.number));
    }
    // No call of the context has arrived here, so nothing here has a gradient.
  }
  Stepped stepped;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const OptimizedParameter& parameter = parameters_[i];
    const auto found = gradients.find(parameter.tensor);
    if (found == gradients.end()) continue;
    // All of them before the first one is changed.
    const std::string refusal =
        TorchOptimizer::refusal(options_[parameter.group], parameter.tensor, found->second);
    if (!refusal.empty()) {
      return refused(ErrorCode::kInvalidArgument, absl::StrCat(parameter.label, ": ", refusal));
    }
    stepped.emplace_back(i, found->second);
  }
  StepAnswer answer;
  answer.updated = stepped.size();
  answer.outcome = StepOutcome::kApplied;
  Stepped for_standby = copies_for_standby(stepped);
  broken_ = apply(stepped);
  if (!broken_.empty()) {
    answer.outcome = StepOutcome::kBroken;
    answer.code = static_cast<std::int32_t>(ErrorCode::kDataLoss);
    answer.error = broken_;
  }
  manager_->add_step();
  answer.order = order_ = manager_->next_order();
  answer.version = ++version_;
  if (broken_.empty()) mirror(request, answer, std::move(for_standby));
  return answer;
}

std::string OptimizerState::apply(const Stepped& gradients) {
  for (const auto& [position, gradient] : gradients) {
    parameters_[position].follow();
    parameters_[position].shadow.mutable_grad() = gradient;
  }
  std::string fault;
  const auto fail = [&](absl::string_view why) {
    fault = why.empty() ? "an exception without a text" : std::string(why);
  };
  try {
    if (!gradients.empty()) optimizer_->step();
  } catch (const c10::Error& error) {
    fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail(error.what());
  }
  for (const auto& [position, gradient] : gradients) {
    parameters_[position].shadow.mutable_grad().reset();
  }
  return fault;
}

void OptimizerState::check_same(const ParametersByGroup& groups) const {
  std::size_t count = 0;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const RRef<at::Tensor>& parameter : groups[group]) {
      if (count < parameters_.size() && parameters_[count].group == group &&
          parameters_[count].tensor.is_same(parameter.local_value())) {
        ++count;
        continue;
      }
      throw RpcError(ErrorCode::kInvalidArgument,
                     absl::StrFormat("the optimizer has %d parameters here, and parameter %d of "
                                     "those that it is rebound to (group %d) is none of them: "
                                     "where the owner lives they stay the same",
                                     parameters_.size(), count, group));
    }
  }
  if (count < parameters_.size()) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("the optimizer has %d parameters here, and is rebound to %d",
                                   parameters_.size(), count));
  }
}

void OptimizerState::bind(const Binding& binding, const std::optional<ParametersByGroup>& groups) {
  if (groups) check_same(*groups);
  if (binding < binding_) {
    throw RpcError(ErrorCode::kAborted, "the optimizer was rebound by another trainer meanwhile");
  }
  binding_ = binding;
}

Future<void> OptimizerState::set_learning_rate(std::size_t group, double lr) {
  optim::Options changed = options(group);
  changed.set_learning_rate(lr);
  return set_options(group, changed);
}

Future<void> OptimizerState::set_options(std::size_t group, const optim::Options& options) {
  const OptionsModel& now = options_.at(group).model();
  if (options.model().type() != now.type()) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("these are options of %s, and the optimizer is %s",
                                   options.name(), now.name()));
  }
  options.check();
  now.check_change(options.model());
  change_options(group, options);
  if (has_standby()) mirror_->send(group, options);
  return mirrored();
}

void OptimizerState::change_options(std::size_t group, const optim::Options& options) {
  optimizer_->set_options(group, options);
  options_[group] = options;
}

std::vector<at::Tensor> OptimizerState::parameters() const {
  std::vector<at::Tensor> tensors;
  for (const OptimizedParameter& parameter : parameters_) tensors.push_back(parameter.tensor);
  return tensors;
}

}  // namespace sinew::internal
