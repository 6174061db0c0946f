// What of an optimizer's state goes to files, and to a standby.

#include <torch/serialize/archive.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "ATen/ops/empty.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/optim/internal/optimizer_state.h"
#include "sinew/optim/internal/options_model.h"
#include "sinew/optim/internal/saved_options.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {

// ---- Checkpoints.

void OptimizerState::keep(const std::vector<at::Tensor>& tensors) {
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

CheckpointManifest OptimizerState::manifest() const {
  CheckpointManifest manifest;
  manifest.optimizer = std::string(options_.front().name());
  for (const OptimizedParameter& parameter : parameters_) {
    manifest.parameters.push_back(parameter.describe());
  }
  for (const at::Tensor& tensor : kept_) manifest.kept.push_back(type_and_sizes(tensor));
  return manifest;
}

std::string OptimizerState::serialize() const { return serialize(kept_); }

std::string OptimizerState::serialize(const std::vector<at::Tensor>& kept) const {
  torch::serialize::OutputArchive archive;
  std::vector<double> rates;
  for (const optim::Options& options : options_) rates.push_back(options.learning_rate());
  archive.write("learning_rates", c10::IValue(rates));
  for (std::size_t i = 0; i < options_.size(); ++i) {
    archive.write(absl::StrCat("options", i), write_options(options_[i]), /*is_buffer=*/true);
  }
  archive.write("version", c10::IValue(static_cast<std::int64_t>(version_)));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    archive.write(absl::StrCat("parameter", i), parameters_[i].tensor.variable_data(),
                  /*is_buffer=*/true);
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    archive.write(absl::StrCat("kept", i), kept[i].variable_data(), /*is_buffer=*/true);
  }
  torch::serialize::OutputArchive state(archive.compilation_unit());
  optimizer_->save(state);
  archive.write("optimizer", state);
  std::ostringstream bytes;
  archive.save_to(bytes);
  return std::move(bytes).str();
}

std::vector<optim::Options> OptimizerState::read_options(
    torch::serialize::InputArchive& archive) const {
  c10::IValue saved_rates;
  archive.read("learning_rates", saved_rates);
  const std::vector<double> rates = saved_rates.toDoubleVector();
  TORCH_CHECK(rates.size() == options_.size(), "it has another number of groups");
  std::vector<optim::Options> options = options_;
  for (std::size_t i = 0; i < options.size(); ++i) {
    at::Tensor saved;
    // Files of before have the rates alone.
    if (archive.try_read(absl::StrCat("options", i), saved, /*is_buffer=*/true)) {
      options[i] = options_after_load(options[i], saved);
    } else {
      options[i].set_learning_rate(rates[i]);
    }
  }
  return options;
}

OptimizerState::Prepared OptimizerState::read(torch::serialize::InputArchive& archive,
                                              const std::vector<at::Tensor>& kept) const {
  Prepared prepared;
  prepared.options = read_options(archive);
  prepared.optimizer = make_optimizer(prepared.options);
  const auto read_like = [&archive](const std::string& name, const at::Tensor& like) {
    at::Tensor value;
    archive.read(name, value, /*is_buffer=*/true);
    TORCH_CHECK(value.sizes().equals(like.sizes()) && value.scalar_type() == like.scalar_type(),
                name, " is not what the manifest says");
    return value;
  };
  c10::IValue version;
  // Files of before have none.
  if (archive.try_read("version", version)) {
    prepared.version = static_cast<std::uint64_t>(version.toInt());
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    prepared.values.push_back(read_like(absl::StrCat("parameter", i), parameters_[i].tensor));
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    prepared.kept.push_back(read_like(absl::StrCat("kept", i), kept[i]));
  }
  torch::serialize::InputArchive state;
  archive.read("optimizer", state);
  prepared.optimizer->load(state);
  return prepared;
}

void OptimizerState::prepare_load(const CheckpointFolder& folder,
                                  const CheckpointManifest& manifest, std::uint64_t load) {
  const std::string path = folder.data_path(manifest.number);
  manifest.check_fits(this->manifest(), path);
  prepared_.reset();
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(path);
    prepared_ = read(archive, kept_);
  } catch (const c10::Error& error) {
    throw RpcError(ErrorCode::kDataLoss,
                   absl::StrFormat("cannot load '%s': %s", path, error.what_without_backtrace()));
  } catch (const RpcError& error) {
    throw RpcError(error.code(), absl::StrFormat("cannot load '%s': %s", path, error.message()));
  }
  prepared_->load = load;
}

Future<void> OptimizerState::apply_load(std::uint64_t load) {
  if (!prepared_.has_value() || prepared_->load != load) {
    throw RpcError(ErrorCode::kAborted, "another load of the optimizer has begun meanwhile");
  }
  apply(*std::exchange(prepared_, std::nullopt));
  if (has_standby()) mirror_->send(snapshot(), options_);
  return mirrored();
}

// Nothing can fail here.
void OptimizerState::apply(Prepared prepared) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].follow();
    parameters_[i].shadow.copy_(prepared.values[i]);
  }
  // As a program would that loads its module; forward passes may have them saved.
  for (std::size_t i = 0; i < prepared.kept.size(); ++i) {
    kept_[i].variable_data().copy_(prepared.kept[i]);
  }
  optimizer_ = std::move(prepared.optimizer);
  options_ = std::move(prepared.options);
  version_ = prepared.version;
  broken_.clear();
}

void OptimizerState::drop_load(std::uint64_t load) {
  if (prepared_.has_value() && prepared_->load == load) prepared_.reset();
}

// ---- An owner that has a standby.

OwnerMake OptimizerState::make() const {
  const CheckpointManifest own = manifest();
  return {own.optimizer, options_.size(), own.parameters};
}

OwnerSnapshot OptimizerState::snapshot() const {
  OwnerSnapshot snapshot;
  snapshot.name = name();
  snapshot.make = make();
  snapshot.answers = answers_.snapshot();
  snapshot.order = order_;
  const std::string bytes = serialize({});
  snapshot.state = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::memcpy(snapshot.state.data_ptr(), bytes.data(), bytes.size());
  return snapshot;
}

// Half of a step is no state to go on from.
void OptimizerState::check_is_whole() const {
  if (broken_.empty()) return;
  throw RpcError(ErrorCode::kFailedPrecondition,
                 absl::StrCat("an earlier step failed half-way: ", broken_,
                              "; load a checkpoint before a standby is added"));
}

Future<void> OptimizerState::dismiss_standby() {
  // Or the only one that has the state from before the step would be lost for one that gets none.
  check_is_whole();
  return mirror_ == nullptr ? make_ready_future() : mirror_->dismiss();
}

Future<void> OptimizerState::add_standby(const Worker& worker, const RRef<LocalOptimizer>& standby,
                                         std::uint64_t stream, Clock::TimePoint deadline) {
  check_is_whole();
  if (has_standby()) {
    throw RpcError(ErrorCode::kAborted, "another standby was added at the same time");
  }
  std::chrono::nanoseconds left = kNoTimeout;
  if (deadline != Clock::TimePoint::max()) {
    left = std::max<std::chrono::nanoseconds>(
        deadline - WorkerAccess::services(worker)->clock().now(), std::chrono::microseconds(1));
  }
  mirror_ = std::make_shared<Mirror>(worker, standby, stream);
  return mirror_->begin(snapshot(), options_, left);
}

Future<void> OptimizerState::mirrored() const {
  return mirror_ == nullptr ? make_ready_future() : mirror_->acknowledged();
}

// Before the step: an optimizer may change its gradients in place, and that of the standby would do
// so once more.
OptimizerState::Stepped OptimizerState::copies_for_standby(const Stepped& gradients) const {
  Stepped copies;
  if (!has_standby()) return copies;
  for (const auto& [position, gradient] : gradients) {
    copies.emplace_back(position, gradient.clone());
  }
  return copies;
}

void OptimizerState::mirror(const StepRequest& request, const StepAnswer& answer,
                            Stepped gradients) {
  if (!has_standby()) return;
  MirroredStep step;
  step.id = request.id;
  step.live_from = request.live_from;
  step.answer = answer;
  for (auto& [position, gradient] : gradients) {
    step.positions.push_back(position);
    step.gradients.push_back(std::move(gradient));
  }
  mirror_->send(step);
}

// ---- A standby.

OptimizerState::Following& OptimizerState::following(std::uint64_t stream) {
  if (following_ && following_->stream == stream && following_->fault.empty()) return *following_;
  throw RpcError(ErrorCode::kAborted, "the standby does not follow these changes any more");
}

void OptimizerState::check_fits(const OwnerMake& make) const {
  CheckpointManifest theirs;
  theirs.optimizer = make.optimizer;
  theirs.parameters = make.parameters;
  CheckpointManifest ours = manifest();
  ours.kept.clear();
  std::string fault = theirs.difference(ours);
  if (fault.empty() && make.groups != options_.size()) {
    fault = absl::StrFormat("it has %d groups there, and %d here", make.groups, options_.size());
  }
  if (fault.empty()) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrCat("the standby is not made as the owner of the parameters: ", fault));
}

void OptimizerState::check_fits(const OwnerSnapshot& snapshot) const {
  check_fits(snapshot.make);
  // Its name becomes a part of files' names.
  if (snapshot.options.size() == options_.size() && snapshot.state.defined() &&
      snapshot.state.scalar_type() == at::kByte && !snapshot.name.empty() &&
      !absl::StrContains(snapshot.name, '/')) {
    return;
  }
  throw RpcError(ErrorCode::kInvalidArgument,
                 "what the owner has comes without its name, its options or its state");
}

FollowOutcome OptimizerState::follow(const ChangeId& id, const OwnerSnapshot& snapshot) {
  if (following_ && following_->has_taken_over) return FollowOutcome::kTookOver;
  if (id.number == 0) following_ = Following{id.stream, {}, false};
  Following& state = following(id.stream);
  state.fault = "it could not take what the owner had";
  check_fits(snapshot);
  const std::vector<optim::Options> before = options_;
  for (std::size_t i = 0; i < options_.size(); ++i) {
    const optim::Options& next = snapshot.options[i].local_value();
    if (next.model().type() != options_[i].model().type()) {
      throw RpcError(ErrorCode::kInvalidArgument, "the standby has another optimizer");
    }
    options_[i] = next;
  }
  try {
    const at::Tensor bytes = snapshot.state.contiguous();
    torch::serialize::InputArchive archive;
    archive.load_from(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes());
    apply(read(archive, {}));
  } catch (const c10::Error& error) {
    options_ = before;
    throw RpcError(ErrorCode::kDataLoss, absl::StrCat("cannot read what the owner has: ",
                                                      error.what_without_backtrace()));
  }
  const std::size_t remembered = answers_.size();
  answers_.restore(snapshot.answers);
  count_answers(remembered);
  {
    MutexLock lock(mutex_);
    name_ = snapshot.name;
  }
  follow_order(snapshot.order);
  state.fault.clear();
  return FollowOutcome::kFollowed;
}

// Numbers of steps go on where the owner's end, so that they always tell what is here.
void OptimizerState::follow_order(std::uint64_t order) {
  order_ = order;
  manager_->raise_order(order);
}

OptimizerState::Stepped OptimizerState::checked(const MirroredStep& step) const {
  Stepped gradients;
  bool is_good = step.positions.size() == step.gradients.size();
  for (std::size_t i = 0; is_good && i < step.positions.size(); ++i) {
    const std::size_t position = step.positions[i];
    const at::Tensor& gradient = step.gradients[i];
    is_good = position < parameters_.size() && gradient.defined() &&
              gradient.sizes().equals(parameters_[position].tensor.sizes()) &&
              TorchOptimizer::refusal(options_[parameters_[position].group],
                                      parameters_[position].tensor, gradient)
                  .empty();
    gradients.emplace_back(position, gradient);
  }
  if (is_good) return gradients;
  throw RpcError(ErrorCode::kInvalidArgument, "the gradients of a step do not fit the standby");
}

FollowOutcome OptimizerState::follow(const ChangeId& id, const MirroredStep& step) {
  if (following_ && following_->has_taken_over) return FollowOutcome::kTookOver;
  Following& state = following(id.stream);
  state.fault = "it could not make a step of the owner's";
  broken_ = apply(checked(step));
  if (!broken_.empty()) throw RpcError(ErrorCode::kDataLoss, broken_);
  manager_->add_step();
  follow_order(step.answer.order);
  version_ = step.answer.version;
  const std::size_t remembered = answers_.size();
  answers_.follow(step);
  count_answers(remembered);
  state.fault.clear();
  return FollowOutcome::kFollowed;
}

FollowOutcome OptimizerState::follow(const ChangeId& id, std::size_t group,
                                     const optim::Options& options) {
  if (following_ && following_->has_taken_over) return FollowOutcome::kTookOver;
  Following& state = following(id.stream);
  state.fault = "it could not take the owner's options";
  if (group >= options_.size() || options.model().type() != options_[group].model().type()) {
    throw RpcError(ErrorCode::kInvalidArgument, "these options do not fit the standby");
  }
  change_options(group, options);
  state.fault.clear();
  return FollowOutcome::kFollowed;
}

FollowOutcome OptimizerState::dismiss(std::uint64_t stream) {
  if (following_ && following_->has_taken_over) return FollowOutcome::kTookOver;
  if (following_ && following_->stream == stream)
    following_->fault = "its owner has gone on without it";
  return FollowOutcome::kFollowed;
}

void OptimizerState::take_over(const Binding& binding, std::uint64_t acknowledged) {
  if (!following_) {
    throw RpcError(ErrorCode::kFailedPrecondition, "it is no standby");
  }
  if (!following_->fault.empty()) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   absl::StrCat("the standby cannot take over: ", following_->fault,
                                "; rebind the optimizer and load a checkpoint"));
  }
  if (order_ < acknowledged) {
    throw RpcError(ErrorCode::kDataLoss,
                   absl::StrFormat("the standby has the owner's steps up to number %d, and number "
                                   "%d was acknowledged: rebind the optimizer and load a "
                                   "checkpoint",
                                   order_, acknowledged));
  }
  bind(binding, std::nullopt);
  following_->has_taken_over = true;
}

}  // namespace sinew::internal
