#include "sinew/parallel/internal/optimizer_shard.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <sstream>
#include <utility>

#include "ATen/Functions.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/optim/internal/optimized_parameter.h"
#include "sinew/optim/internal/saved_options.h"
#include "sinew/parallel/internal/module_parts.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel::internal {
namespace {

[[noreturn]] void refuse_shard(const std::string& text) {
  throw RpcError(ErrorCode::kInvalidArgument, absl::StrCat("ZeroRedundancyOptimizer: ", text));
}

void check_parameter(const at::Tensor& parameter, std::size_t number) {
  const char* problem = nullptr;
  if (!parameter.defined()) {
    problem = "is undefined";
  } else if (!parameter.is_leaf()) {
    problem = "is no leaf";
  } else if (!parameter.is_floating_point() || parameter.is_sparse()) {
    problem = "is not dense and of floating point";
  }
  if (problem != nullptr) refuse_shard(absl::StrFormat("parameter %d %s", number, problem));
}

/// For each parameter the rank that steps it.
std::vector<int> assign_owners(const std::vector<ParameterGroup>& groups, int ranks) {
  std::vector<std::int64_t> elements(static_cast<std::size_t>(ranks), 0);
  std::vector<int> owners;
  for (const ParameterGroup& group : groups) {
    std::vector<std::size_t> order(group.parameters.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&group](std::size_t a, std::size_t b) {
      return group.parameters[a].numel() > group.parameters[b].numel();
    });
    const std::size_t first = owners.size();
    owners.resize(first + order.size());
    for (const std::size_t number : order) {
      const auto least = std::min_element(elements.begin(), elements.end());
      *least += group.parameters[number].numel();
      owners[first + number] = static_cast<int>(least - elements.begin());
    }
  }
  return owners;
}

std::string options_key(std::size_t group) { return absl::StrCat("options", group); }
std::string state_key(std::size_t parameter) { return absl::StrCat("state", parameter); }
std::string parameter_key(std::size_t parameter) { return absl::StrCat("parameter", parameter); }

at::Tensor to_tensor(const std::string& text) {
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

std::string to_bytes(torch::serialize::OutputArchive& archive) {
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

}  // namespace

OptimizerShard::OptimizerShard(const std::vector<ParameterGroup>& groups, int rank, int ranks) {
  for (const ParameterGroup& group : groups) add_group(group);
  if (parameters_.empty()) refuse_shard("there are no parameters");
  absl::flat_hash_set<const c10::TensorImpl*> seen;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (seen.insert(parameters_[i].tensor.unsafeGetTensorImpl()).second) continue;
    refuse_shard(absl::StrFormat("parameter %d is there twice: %s", i, sinew::internal::kTiedOnce));
  }
  const std::vector<int> owners = assign_owners(groups, ranks);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    parameter.owner = owners[i];
    if (parameter.owner != rank) continue;
    parameter.stepped = parameter.tensor.detach().requires_grad_();
    parameter.optimizer = make_optimizer(parameter, options_[parameter.group]);
  }
}

void OptimizerShard::add_group(const ParameterGroup& group) {
  group.options.check();
  if (!options_.empty() && group.options.name() != options_.front().name()) {
    refuse_shard(
        absl::StrFormat("the groups of one optimizer are of one kind, but there are %s and %s",
                        options_.front().name(), group.options.name()));
  }
  for (const at::Tensor& tensor : group.parameters) {
    check_parameter(tensor, parameters_.size());
    Parameter parameter;
    parameter.tensor = tensor;
    parameter.description = describe(absl::StrFormat("%s parameter", group.options.name()).c_str(),
                                     {absl::StrCat(parameters_.size()), tensor});
    parameter.group = options_.size();
    parameters_.push_back(std::move(parameter));
  }
  options_.push_back(group.options);
}

std::unique_ptr<sinew::internal::TorchOptimizer> OptimizerShard::make_optimizer(
    const Parameter& parameter, const optim::Options& options) {
  return std::make_unique<TorchOptimizer>(
      std::vector<TorchOptimizer::Group>{{{parameter.stepped}, options}});
}

std::vector<std::string> OptimizerShard::descriptions() const {
  std::vector<std::string> result;
  for (const Parameter& parameter : parameters_) result.push_back(parameter.description);
  return result;
}

std::vector<at::Tensor> OptimizerShard::parameters() const {
  std::vector<at::Tensor> result;
  for (const Parameter& parameter : parameters_) result.push_back(parameter.tensor);
  return result;
}

std::vector<at::Tensor> OptimizerShard::parameters_of(int rank) const {
  std::vector<at::Tensor> result;
  for (const Parameter& parameter : parameters_) {
    if (parameter.owner == rank) result.push_back(parameter.tensor);
  }
  return result;
}

int OptimizerShard::owner_of(std::size_t parameter) const {
  if (parameter < parameters_.size()) return parameters_[parameter].owner;
  throw RpcError(
      ErrorCode::kOutOfRange,
      absl::StrFormat("ZeroRedundancyOptimizer: there is no parameter %d, but %d of them",
                      parameter, parameters_.size()));
}

void OptimizerShard::step(const std::function<at::Tensor(const at::Tensor&)>& gradient_of) {
  // All of them, and before anything is stepped: the other ranks have the same gradients and refuse
  // them too, rather than wait for this one.
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    gradients.push_back(gradient_of(parameter.tensor));
    if (!gradients[i].defined()) continue;
    const std::string refusal =
        TorchOptimizer::refusal(options_[parameter.group], parameter.tensor, gradients[i]);
    if (!refusal.empty()) refuse_shard(absl::StrFormat("parameter %d: %s", i, refusal));
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    if (parameter.optimizer == nullptr || !gradients[i].defined()) continue;
    parameter.stepped.mutable_grad() = gradients[i];
    parameter.optimizer->step();
    parameter.stepped.mutable_grad().reset();
  }
}

void OptimizerShard::set_learning_rate(std::size_t group, double lr) {
  if (group >= options_.size()) {
    throw RpcError(ErrorCode::kOutOfRange,
                   absl::StrFormat("ZeroRedundancyOptimizer: there is no group %d, but %d groups",
                                   group, options_.size()));
  }
  optim::Options changed = options_[group];
  changed.set_learning_rate(lr);
  changed.check();
  set_options(group, changed);
}

void OptimizerShard::set_options(std::size_t group, const optim::Options& options) {
  options_[group] = options;
  for (Parameter& parameter : parameters_) {
    if (parameter.group == group && parameter.optimizer != nullptr) {
      parameter.optimizer->set_options(0, options);
    }
  }
}

std::vector<std::string> OptimizerShard::option_lines() const {
  std::vector<std::string> lines;
  for (const optim::Options& options : options_) {
    lines.push_back(absl::StrCat("group ", lines.size(), ": ", sinew::internal::text_of(options)));
  }
  return lines;
}

void OptimizerShard::take_options(const std::string& state) {
  torch::serialize::InputArchive archive;
  archive.load_from(state.data(), state.size());
  const std::vector<optim::Options> options = read_options(archive);
  for (std::size_t i = 0; i < options.size(); ++i) set_options(i, options[i]);
}

std::size_t OptimizerShard::state_bytes() const {
  std::size_t bytes = 0;
  for (const Parameter& parameter : parameters_) {
    if (parameter.optimizer != nullptr) bytes += parameter.optimizer->state_bytes();
  }
  return bytes;
}

// ---- What is saved: an archive with an archive for each parameter, as bytes. So the parts of
// several ranks can be put together, and each be read alone.

std::string OptimizerShard::save_part() const {
  torch::serialize::OutputArchive archive;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].optimizer == nullptr) continue;
    torch::serialize::OutputArchive one;
    parameters_[i].optimizer->save(one);
    archive.write(state_key(i), to_tensor(to_bytes(one)), /*is_buffer=*/true);
  }
  return to_bytes(archive);
}

torch::serialize::OutputArchive OptimizerShard::begin_state() const {
  torch::serialize::OutputArchive state;
  state.write("optimizer", c10::IValue(std::string(options_.front().name())));
  state.write("parameters", c10::IValue(static_cast<std::int64_t>(parameters_.size())));
  std::vector<double> rates;
  for (const optim::Options& options : options_) rates.push_back(options.learning_rate());
  state.write("rates", c10::IValue(rates));
  for (std::size_t i = 0; i < options_.size(); ++i) {
    state.write(options_key(i), sinew::internal::write_options(options_[i]), /*is_buffer=*/true);
  }
  return state;
}

void OptimizerShard::add_part(const std::string& part, int rank,
                              torch::serialize::OutputArchive& state) const {
  torch::serialize::InputArchive archive;
  archive.load_from(part.data(), part.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].owner != rank) continue;
    at::Tensor bytes;
    archive.read(state_key(i), bytes, /*is_buffer=*/true);
    state.write(state_key(i), bytes, /*is_buffer=*/true);
    state.write(parameter_key(i), c10::IValue(parameters_[i].description));
  }
}

std::string OptimizerShard::finish_state(torch::serialize::OutputArchive& state) {
  return to_bytes(state);
}

void OptimizerShard::load(const std::string& state) {
  std::vector<optim::Options> options;
  Optimizers loaded;
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(state.data(), state.size());
    options = read_options(archive);
    loaded = read_parts(archive, options);
  } catch (const c10::Error& error) {
    refuse_shard(absl::StrCat("the state cannot be read: ", error.what_without_backtrace()));
  }
  options_ = std::move(options);
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    if (loaded[i] != nullptr) parameters_[i].optimizer = std::move(loaded[i]);
  }
}

std::vector<optim::Options> OptimizerShard::read_options(
    torch::serialize::InputArchive& archive) const {
  c10::IValue name;
  c10::IValue count;
  c10::IValue rates;
  archive.read("optimizer", name);
  archive.read("parameters", count);
  archive.read("rates", rates);
  const std::vector<double> saved_rates = rates.toDoubleVector();
  const std::string own_name(options_.front().name());
  if (name.toStringRef() != own_name ||
      count.toInt() != static_cast<std::int64_t>(parameters_.size()) ||
      saved_rates.size() != options_.size()) {
    refuse_shard(
        absl::StrFormat("the state that was saved is of %s with %d parameters in %d groups, "
                        "but this is %s with %d in %d",
                        name.toStringRef(), count.toInt(), saved_rates.size(), own_name,
                        parameters_.size(), options_.size()));
  }
  std::vector<optim::Options> result = options_;
  for (std::size_t i = 0; i < result.size(); ++i) {
    at::Tensor saved;
    // States of before have the rates alone.
    if (archive.try_read(options_key(i), saved, /*is_buffer=*/true)) {
      result[i] = sinew::internal::options_after_load(result[i], saved);
    } else {
      result[i].set_learning_rate(saved_rates[i]);
    }
  }
  return result;
}

// Each part goes into an optimizer of its own first, so that nothing is changed when one does not
// fit.
OptimizerShard::Optimizers OptimizerShard::read_parts(
    torch::serialize::InputArchive& archive, const std::vector<optim::Options>& options) const {
  Optimizers loaded(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    c10::IValue description;
    archive.read(parameter_key(i), description);
    if (description.toStringRef() != parameters_[i].description) {
      refuse_shard(absl::StrFormat("the state that was saved is of %s, but there is %s",
                                   description.toStringRef(), parameters_[i].description));
    }
    if (parameters_[i].optimizer == nullptr) continue;
    at::Tensor bytes;
    archive.read(state_key(i), bytes, /*is_buffer=*/true);
    bytes = bytes.contiguous();
    torch::serialize::InputArchive one;
    one.load_from(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes());
    loaded[i] = make_optimizer(parameters_[i], options.at(parameters_[i].group));
    loaded[i]->load(one);
  }
  return loaded;
}

}  // namespace sinew::parallel::internal
