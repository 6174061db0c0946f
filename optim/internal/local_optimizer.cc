#include "sinew/optim/internal/local_optimizer.h"

#include <torch/serialize/archive.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <tuple>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/autograd/context.h"
#include "sinew/optim/internal/checkpoint_folder.h"
#include "sinew/optim/internal/gradient_norms.h"
#include "sinew/optim/internal/optim_manager.h"
#include "sinew/optim/internal/optimized_parameter.h"
#include "sinew/optim/internal/options_model.h"
#include "sinew/optim/internal/pending_saves.h"
#include "sinew/optim/internal/step_answers.h"
#include "sinew/optim/internal/torch_optimizer.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

OptimManager& manager_of(const Worker& worker) {
  return *OptimManager::of(*WorkerAccess::services(worker));
}

CheckpointFolder folder_of(const Worker& worker, const std::string& name) {
  return CheckpointFolder(manager_of(worker).checkpoint_root(), name, worker.name());
}

}  // namespace

class LocalOptimizer::State : public std::enable_shared_from_this<State> {
 public:
  State(const Worker& worker, const std::vector<OptimizerGroup>& groups);
  ~State() {
    manager_->add_optimizers(-1);
    manager_->add_step_answers(-static_cast<std::int64_t>(answers_.size()));
  }

  const std::vector<double>& initial_learning_rates() const { return initial_rates_; }

  /// Runs `work(worker, deadline)` when nothing else works on the parameters.
  template <class Result, class Work>
  Future<Result> when_free(Work work) {
    Promise<Result> promise;
    Future<Result> future = promise.future();
    manager_->gate()->run(keys_,
                          [self = shared_from_this(), promise, worker = current_worker(),
                           deadline = CallContext::current().deadline(), work = std::move(work)] {
                            try {
                              const at::AutoGradMode no_grad(false);
                              if constexpr (std::is_void_v<Result>) {
                                work(*self, worker, deadline);
                                promise.set_value();
                              } else {
                                promise.set_value(work(*self, worker, deadline));
                              }
                            } catch (...) {
                              promise.set_error(std::current_exception());
                            }
                          });
    return future;
  }

  PendingSaves& pending_saves() { return pending_saves_; }

  // While the gate is held.

  StepAnswer step(const Worker& worker, const StepRequest& request, Clock::TimePoint deadline);
  const Binding& binding() const { return binding_; }
  void bind(const Binding& binding, const ParametersByGroup& groups);
  void set_learning_rate(std::size_t group, double lr);
  void set_options(std::size_t group, const optim::Options& options);
  std::vector<at::Tensor> parameters() const;
  const optim::Options& options(std::size_t group) const { return options_.at(group); }
  void keep(const std::vector<at::Tensor>& tensors);
  CheckpointManifest manifest() const;
  std::string serialize() const;
  void prepare_load(const CheckpointFolder& folder, const CheckpointManifest& manifest,
                    std::uint64_t load);
  void apply_load(std::uint64_t load);
  void drop_load(std::uint64_t load);

 private:
  /// What a load will change.
  struct Prepared {
    std::uint64_t load = 0;
    std::uint64_t version = 0;
    std::vector<double> rates;
    std::vector<at::Tensor> values;
    std::vector<at::Tensor> kept;
    std::unique_ptr<TorchOptimizer> optimizer;
  };

  Prepared read(const std::string& path) const;
  StepAnswer apply(const Worker& worker, const StepRequest& request);
  std::unique_ptr<TorchOptimizer> make_optimizer() const;
  StepAnswer step_once(const Worker& worker, const StepRequest& request, Clock::TimePoint deadline);

  const std::shared_ptr<OptimManager> manager_;
  std::size_t group_count_ = 0;
  std::vector<double> initial_rates_;
  PendingSaves pending_saves_;
  // Everything below is for whoever holds the gate for keys_.
  std::vector<const void*> keys_;
  std::vector<OptimizedParameter> parameters_;
  // Of checkpoints only, and shared with the program.
  std::vector<at::Tensor> kept_;
  std::vector<optim::Options> options_;
  std::unique_ptr<TorchOptimizer> optimizer_;
  std::optional<Prepared> prepared_;
  Binding binding_;
  std::uint64_t version_ = 0;
  StepAnswers answers_;
  // What went wrong in the middle of a step; empty: nothing.
  std::string broken_;
};

LocalOptimizer::State::State(const Worker& worker, const std::vector<OptimizerGroup>& groups)
    : manager_(OptimManager::of(*WorkerAccess::services(worker))),
      group_count_(groups.size()),
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
                       absl::StrCat(parameter.label, " is in the optimizer twice"));
      }
      keys_.push_back(key);
      parameter.shadow = parameter.tensor.variable_data();
      parameters_.push_back(std::move(parameter));
    }
  }
  // The optimizer itself, for one that has no parameters.
  keys_.push_back(this);
  optimizer_ = make_optimizer();
  manager_->add_optimizers(1);
}

std::unique_ptr<TorchOptimizer> LocalOptimizer::State::make_optimizer() const {
  std::vector<TorchOptimizer::Group> groups(options_.size());
  for (std::size_t i = 0; i < options_.size(); ++i) groups[i].options = options_[i];
  for (const OptimizedParameter& parameter : parameters_) {
    groups[parameter.group].parameters.push_back(parameter.shadow);
  }
  return std::make_unique<TorchOptimizer>(groups);
}

// ---- Steps.

StepAnswer LocalOptimizer::State::step(const Worker& worker, const StepRequest& request,
                                       Clock::TimePoint deadline) {
  const std::size_t remembered = answers_.size();
  std::optional<StepAnswer> answer = answers_.find(request);
  if (!answer) {
    answer = step_once(worker, request, deadline);
    if (answer->outcome != StepOutcome::kRefused) answers_.add(request.id, *answer);
  }
  manager_->add_step_answers(static_cast<std::int64_t>(answers_.size()) -
                             static_cast<std::int64_t>(remembered));
  return *std::move(answer);
}

StepAnswer LocalOptimizer::State::step_once(const Worker& worker, const StepRequest& request,
                                            Clock::TimePoint deadline) {
  const std::uint64_t number = request.id.number;
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

StepAnswer LocalOptimizer::State::apply(const Worker& worker, const StepRequest& request) {
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
    // No call of the context has come here, so nothing here has a gradient.
  }
  std::vector<std::pair<OptimizedParameter*, at::Tensor>> stepped;
  for (OptimizedParameter& parameter : parameters_) {
    const auto found = gradients.find(parameter.tensor);
    if (found == gradients.end()) continue;
    // All of them before the first one is changed.
    const std::string refusal =
        TorchOptimizer::refusal(options_[parameter.group], parameter.tensor, found->second);
    if (!refusal.empty()) {
      return refused(ErrorCode::kInvalidArgument, absl::StrCat(parameter.label, ": ", refusal));
    }
    stepped.emplace_back(&parameter, found->second);
  }
  StepAnswer answer;
  answer.updated = stepped.size();
  answer.outcome = StepOutcome::kApplied;
  for (const auto& [parameter, gradient] : stepped) {
    parameter->follow();
    parameter->shadow.mutable_grad() = gradient;
  }
  const auto fail = [&](absl::string_view why) {
    broken_ = why.empty() ? "an exception without a text" : std::string(why);
    answer.outcome = StepOutcome::kBroken;
    answer.code = static_cast<std::int32_t>(ErrorCode::kDataLoss);
    answer.error = broken_;
  };
  try {
    if (!stepped.empty()) optimizer_->step();
  } catch (const c10::Error& error) {
    fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail(error.what());
  }
  for (const auto& [parameter, gradient] : stepped) parameter->shadow.mutable_grad().reset();
  answer.order = manager_->next_order();
  answer.version = ++version_;
  return answer;
}

void LocalOptimizer::State::bind(const Binding& binding, const ParametersByGroup& groups) {
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
  if (binding < binding_) {
    throw RpcError(ErrorCode::kAborted, "the optimizer was rebound by somebody else meanwhile");
  }
  binding_ = binding;
}

void LocalOptimizer::State::set_learning_rate(std::size_t group, double lr) {
  optim::Options changed = options(group);
  changed.set_learning_rate(lr);
  set_options(group, changed);
}

void LocalOptimizer::State::set_options(std::size_t group, const optim::Options& options) {
  const OptionsModel& now = options_.at(group).model();
  if (options.model().type() != now.type()) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("these are options of %s, and the optimizer is %s",
                                   options.name(), now.name()));
  }
  options.check();
  now.check_change(options.model());
  optimizer_->set_options(group, options);
  options_[group] = options;
}

std::vector<at::Tensor> LocalOptimizer::State::parameters() const {
  std::vector<at::Tensor> tensors;
  for (const OptimizedParameter& parameter : parameters_) tensors.push_back(parameter.tensor);
  return tensors;
}

// ---- Checkpoints.

void LocalOptimizer::State::keep(const std::vector<at::Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined() || tensors[i].layout() != at::kStrided) {
      throw RpcError(ErrorCode::kInvalidArgument,
                     absl::StrFormat("tensor %d of those to keep is undefined, or not dense", i));
    }
  }
  const auto is_known = [this](const at::Tensor& tensor) {
    return std::any_of(kept_.begin(), kept_.end(),
                       [&](const at::Tensor& one) { return one.is_same(tensor); }) ||
           std::any_of(parameters_.begin(), parameters_.end(),
                       [&](const OptimizedParameter& one) { return one.tensor.is_same(tensor); });
  };
  for (const at::Tensor& tensor : tensors) {
    if (!is_known(tensor)) kept_.push_back(tensor);
  }
}

CheckpointManifest LocalOptimizer::State::manifest() const {
  CheckpointManifest manifest;
  manifest.optimizer = std::string(options_.front().name());
  for (const OptimizedParameter& parameter : parameters_) {
    manifest.parameters.push_back(parameter.describe());
  }
  for (const at::Tensor& tensor : kept_) manifest.kept.push_back(type_and_sizes(tensor));
  return manifest;
}

std::string LocalOptimizer::State::serialize() const {
  torch::serialize::OutputArchive archive;
  std::vector<double> rates;
  for (const optim::Options& options : options_) rates.push_back(options.learning_rate());
  archive.write("learning_rates", c10::IValue(rates));
  archive.write("version", c10::IValue(static_cast<std::int64_t>(version_)));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    archive.write(absl::StrCat("parameter", i), parameters_[i].tensor.variable_data(),
                  /*is_buffer=*/true);
  }
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    archive.write(absl::StrCat("kept", i), kept_[i].variable_data(), /*is_buffer=*/true);
  }
  torch::serialize::OutputArchive state(archive.compilation_unit());
  optimizer_->save(state);
  archive.write("optimizer", state);
  std::ostringstream bytes;
  archive.save_to(bytes);
  return std::move(bytes).str();
}

LocalOptimizer::State::Prepared LocalOptimizer::State::read(const std::string& path) const {
  Prepared prepared;
  prepared.optimizer = make_optimizer();
  const auto read_like = [](torch::serialize::InputArchive& archive, const std::string& name,
                            const at::Tensor& like) {
    at::Tensor value;
    archive.read(name, value, /*is_buffer=*/true);
    TORCH_CHECK(value.sizes().equals(like.sizes()) && value.scalar_type() == like.scalar_type(),
                name, " is not what the manifest says");
    return value;
  };
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(path);
    c10::IValue rates;
    archive.read("learning_rates", rates);
    prepared.rates = rates.toDoubleVector();
    c10::IValue version;
    // Files of before have none.
    if (archive.try_read("version", version)) {
      prepared.version = static_cast<std::uint64_t>(version.toInt());
    }
    TORCH_CHECK(prepared.rates.size() == options_.size(), "it has another number of groups");
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      prepared.values.push_back(
          read_like(archive, absl::StrCat("parameter", i), parameters_[i].tensor));
    }
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      prepared.kept.push_back(read_like(archive, absl::StrCat("kept", i), kept_[i]));
    }
    torch::serialize::InputArchive state;
    archive.read("optimizer", state);
    prepared.optimizer->load(state);
  } catch (const c10::Error& error) {
    throw RpcError(ErrorCode::kDataLoss,
                   absl::StrFormat("cannot load '%s': %s", path, error.what_without_backtrace()));
  } catch (const RpcError& error) {
    throw RpcError(error.code(), absl::StrFormat("cannot load '%s': %s", path, error.message()));
  }
  return prepared;
}

void LocalOptimizer::State::prepare_load(const CheckpointFolder& folder,
                                         const CheckpointManifest& manifest, std::uint64_t load) {
  const std::string path = folder.data_path(manifest.number);
  manifest.check_fits(this->manifest(), path);
  prepared_.reset();
  prepared_ = read(path);
  prepared_->load = load;
}

void LocalOptimizer::State::apply_load(std::uint64_t load) {
  if (!prepared_.has_value() || prepared_->load != load) {
    throw RpcError(ErrorCode::kAborted, "another load of the optimizer has begun meanwhile");
  }
  Prepared prepared = *std::exchange(prepared_, std::nullopt);
  // Nothing can fail from here on.
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].follow();
    parameters_[i].shadow.copy_(prepared.values[i]);
  }
  // As a program would that loads its module; forward passes may have them saved.
  for (std::size_t i = 0; i < kept_.size(); ++i) kept_[i].variable_data().copy_(prepared.kept[i]);
  optimizer_ = std::move(prepared.optimizer);
  for (std::size_t i = 0; i < options_.size(); ++i) set_learning_rate(i, prepared.rates[i]);
  version_ = prepared.version;
  broken_.clear();
}

void LocalOptimizer::State::drop_load(std::uint64_t load) {
  if (prepared_.has_value() && prepared_->load == load) prepared_.reset();
}

// ---- The methods.

LocalOptimizer::LocalOptimizer(const std::vector<OptimizerGroup>& groups)
    : state_(std::make_shared<State>(current_worker(), groups)) {}

Future<StepAnswer> LocalOptimizer::step(const StepRequest& request) {
  const WorkerInfo& caller = CallContext::current().caller();
  // Else it could use up the numbers of another trainer's steps, or have them taken for given up.
  if (request.id.trainer != caller.incarnation.value) {
    throw RpcError(
        ErrorCode::kPermissionDenied,
        absl::StrFormat("worker '%s' asks for a step in another trainer's name", caller.name));
  }
  return state_->when_free<StepAnswer>(
      [request](State& state, const Worker& worker, Clock::TimePoint deadline) {
        return state.step(worker, request, deadline);
      });
}

Future<Binding> LocalOptimizer::binding() {
  return state_->when_free<Binding>(
      [](State& state, const Worker&, Clock::TimePoint) { return state.binding(); });
}

Future<void> LocalOptimizer::bind(const Binding& binding, const ParametersByGroup& groups) {
  return state_->when_free<void>([binding, groups](State& state, const Worker&, Clock::TimePoint) {
    state.bind(binding, groups);
  });
}

Future<void> LocalOptimizer::set_learning_rate(std::uint64_t group, double lr) {
  return state_->when_free<void>([group, lr](State& state, const Worker&, Clock::TimePoint) {
    state.set_learning_rate(group, lr);
  });
}

Future<void> LocalOptimizer::set_options(std::uint64_t group, const RRef<optim::Options>& options) {
  return state_->when_free<void>(
      [group, next = options.local_value()](State& state, const Worker&, Clock::TimePoint) {
        state.set_options(group, next);
      });
}

Future<optim::Options> LocalOptimizer::options(std::uint64_t group) {
  return state_->when_free<optim::Options>(
      [group](State& state, const Worker&, Clock::TimePoint) { return state.options(group); });
}

Future<std::uint64_t> LocalOptimizer::unscale(const autograd::ContextId& context, double factor,
                                              std::uint64_t operation) {
  const ScaleRequest request{operation, CallContext::current().caller()};
  return state_->when_free<std::uint64_t>(
      [=](State& state, const Worker& worker, Clock::TimePoint) {
        return unscale_gradients(worker, context, state.parameters(), factor, request);
      });
}

Future<void> LocalOptimizer::keep(const std::vector<RRef<at::Tensor>>& tensors) {
  std::vector<at::Tensor> values;
  for (const RRef<at::Tensor>& tensor : tensors) values.push_back(tensor.local_value());
  return state_->when_free<void>(
      [values](State& state, const Worker&, Clock::TimePoint) { state.keep(values); });
}

std::vector<double> LocalOptimizer::initial_learning_rates() {
  return state_->initial_learning_rates();
}

CheckpointParts LocalOptimizer::checkpoints(const std::string& folder) {
  return folder_of(current_worker(), folder).parts();
}

std::uint64_t LocalOptimizer::next_checkpoint(const std::string& folder, std::uint64_t at_least) {
  const Worker worker = current_worker();
  return manager_of(worker).next_checkpoint(folder_of(worker, folder).path(), at_least);
}

Future<void> LocalOptimizer::begin_save(const CheckpointPlace& place,
                                        const CheckpointNotes& notes) {
  const CheckpointFolder folder = folder_of(current_worker(), place.folder);
  using Saved = std::pair<CheckpointManifest, std::string>;
  const Future<Saved> copied =
      state_->when_free<Saved>([](State& state, const Worker&, Clock::TimePoint) {
        return Saved(state.manifest(), state.serialize());
      });
  // Before the other continuation, so that the trainer can go on while the file is written.
  Future<void> begun = copied.then([](const Saved&) {});
  state_->pending_saves().add(place.id,
                              copied.then([folder, id = place.id, notes](const Saved& saved) {
                                CheckpointManifest manifest = saved.first;
                                manifest.number = id.number;
                                manifest.save = id.save;
                                manifest.notes = notes;
                                folder.write(std::move(manifest), saved.second);
                              }));
  return begun;
}

Future<void> LocalOptimizer::finish_save(const CheckpointId& id) {
  return state_->pending_saves().take(id);
}

void LocalOptimizer::forget_before(const std::string& folder, std::uint64_t number) {
  folder_of(current_worker(), folder).remove_before(number);
}

Future<CheckpointNotes> LocalOptimizer::prepare_load(const CheckpointPlace& place,
                                                     std::uint64_t load) {
  const CheckpointFolder folder = folder_of(current_worker(), place.folder);
  const CheckpointManifest manifest = folder.read_manifest(place.id.number);
  if (manifest.save != place.id.save) {
    throw RpcError(ErrorCode::kNotFound,
                   absl::StrFormat("'%s' is of another save", folder.data_path(place.id.number)));
  }
  folder.check_data(manifest);
  return state_->when_free<CheckpointNotes>(
      [folder, manifest, load](State& state, const Worker&, Clock::TimePoint) {
        state.prepare_load(folder, manifest, load);
        return manifest.notes;
      });
}

Future<void> LocalOptimizer::apply_load(std::uint64_t load) {
  return state_->when_free<void>(
      [load](State& state, const Worker&, Clock::TimePoint) { state.apply_load(load); });
}

Future<void> LocalOptimizer::drop_load(std::uint64_t load) {
  return state_->when_free<void>(
      [load](State& state, const Worker&, Clock::TimePoint) { state.drop_load(load); });
}

}  // namespace sinew::internal
