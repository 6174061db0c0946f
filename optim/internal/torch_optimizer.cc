#include "sinew/optim/internal/torch_optimizer.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "absl/strings/str_format.h"
#include "sinew/optim/internal/options_model.h"
#include "sinew/optim/internal/stateful_optimizer.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

std::vector<at::Tensor> defined_of(std::vector<at::Tensor> tensors) {
  tensors.erase(std::remove_if(tensors.begin(), tensors.end(),
                               [](const at::Tensor& tensor) { return !tensor.defined(); }),
                tensors.end());
  return tensors;
}

/// What LibTorch's optimizers keep of one parameter.
std::vector<at::Tensor> tensors_of(const torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;
  if (const auto* sgd = dynamic_cast<const SGDParamState*>(&state)) {
    return defined_of({sgd->momentum_buffer()});
  }
  if (const auto* adam = dynamic_cast<const AdamParamState*>(&state)) {
    return defined_of({adam->exp_avg(), adam->exp_avg_sq(), adam->max_exp_avg_sq()});
  }
  if (const auto* adamw = dynamic_cast<const AdamWParamState*>(&state)) {
    return defined_of({adamw->exp_avg(), adamw->exp_avg_sq(), adamw->max_exp_avg_sq()});
  }
  if (const auto* adagrad = dynamic_cast<const AdagradParamState*>(&state)) {
    return defined_of({adagrad->sum()});
  }
  if (const auto* rmsprop = dynamic_cast<const RMSpropParamState*>(&state)) {
    return defined_of({rmsprop->square_avg(), rmsprop->momentum_buffer(), rmsprop->grad_avg()});
  }
  return {};
}

/// The option that needs what `state` does not have: LibTorch makes it at the first step only. Null
/// when there is none.
const char* option_without_state(const optim::Options& options,
                                 const torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;
  const auto lacks = [](bool needed, const at::Tensor& tensor) {
    return needed && !tensor.defined();
  };
  if (const auto* adam = options.get_if<optim::AdamOptions>()) {
    const auto& kept = static_cast<const AdamParamState&>(state);
    if (lacks(adam->amsgrad, kept.max_exp_avg_sq())) return "amsgrad";
  } else if (const auto* adamw = options.get_if<optim::AdamWOptions>()) {
    const auto& kept = static_cast<const AdamWParamState&>(state);
    if (lacks(adamw->amsgrad, kept.max_exp_avg_sq())) return "amsgrad";
  } else if (const auto* rms = options.get_if<optim::RmsPropOptions>()) {
    const auto& kept = static_cast<const RMSpropParamState&>(state);
    if (lacks(rms->centered, kept.grad_avg())) return "centered";
    if (lacks(rms->momentum > 0, kept.momentum_buffer())) return "momentum";
  }
  return nullptr;
}

/// Null when the parameter was never stepped. LibTorch has changed the type of the keys.
template <class States>
const torch::optim::OptimizerParamState* state_of(const States& states,
                                                  const at::Tensor& parameter) {
  typename States::const_iterator found;
  if constexpr (std::is_same_v<typename States::key_type, std::string>) {
    // As LibTorch writes the address.
    std::ostringstream key;
    key << parameter.unsafeGetTensorImpl();
    found = states.find(key.str());
  } else {
    found = states.find(parameter.unsafeGetTensorImpl());
  }
  return found == states.end() ? nullptr : found->second.get();
}

/// Whether tensors_of() knows all that it keeps.
bool is_torchs(const Optimizer& optimizer) {
  using namespace torch::optim;
  return dynamic_cast<const SGD*>(&optimizer) != nullptr ||
         dynamic_cast<const Adam*>(&optimizer) != nullptr ||
         dynamic_cast<const AdamW*>(&optimizer) != nullptr ||
         dynamic_cast<const Adagrad*>(&optimizer) != nullptr ||
         dynamic_cast<const RMSprop*>(&optimizer) != nullptr;
}

std::size_t saved_bytes(const Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::size_t bytes = 0;
  archive.save_to([&bytes](const void*, std::size_t size) {
    bytes += size;
    return size;
  });
  return bytes;
}

std::unique_ptr<Optimizer> make(const std::vector<TorchOptimizer::Group>& groups) {
  const OptionsModel& first = groups.front().options.model();
  std::vector<OptimizerParamGroup> translated;
  for (const TorchOptimizer::Group& group : groups) {
    const OptionsModel& options = group.options.model();
    if (options.type() != first.type()) {
      throw RpcError(ErrorCode::kInvalidArgument,
                     absl::StrFormat("the groups of one optimizer are of one kind, but there are "
                                     "%s and %s",
                                     first.name(), options.name()));
    }
    translated.emplace_back(group.parameters, options.torch_options());
  }
  return first.make_optimizer(std::move(translated));
}

}  // namespace

TorchOptimizer::TorchOptimizer(const std::vector<Group>& groups) : optimizer_(make(groups)) {
  for (const Group& group : groups) options_.push_back(group.options);
}

TorchOptimizer::~TorchOptimizer() = default;

std::string TorchOptimizer::refusal(const optim::Options& options, const at::Tensor& parameter,
                                    const at::Tensor& gradient) {
  if (!gradient.sizes().equals(parameter.sizes())) return "its gradient has another shape";
  if (gradient.device() != parameter.device()) return "its gradient is on another device";
  if (!gradient.is_sparse() || options.model().takes_sparse_gradients()) return "";
  return absl::StrFormat(
      "its gradient is sparse, which %s does not take as it is set: use SGD or Adagrad without "
      "weight_decay for it, in an optimizer of its own, or make the embedding dense",
      options.name());
}

void TorchOptimizer::step() {
  // LibTorch's see to it themselves; users' need not.
  const at::AutoGradMode no_grad(false);
  optimizer_->step();
}

void TorchOptimizer::set_options(std::size_t group, const optim::Options& options) {
  optimizer_->param_groups().at(group).set_options(options.model().torch_options());
  options_.at(group) = options;
}

std::size_t TorchOptimizer::state_bytes() const {
  if (const auto* ours = dynamic_cast<const StatefulOptimizer*>(optimizer_.get())) {
    return ours->state_bytes();
  }
  if (!is_torchs(*optimizer_)) return saved_bytes(*optimizer_);
  std::size_t bytes = 0;
  for (const auto& [parameter, state] : optimizer_->state()) {
    for (const at::Tensor& tensor : tensors_of(*state)) bytes += tensor.nbytes();
  }
  return bytes;
}

void TorchOptimizer::check_has_checkpoints() const {
  if (options_.front().model().has_checkpoints()) return;
  throw RpcError(
      ErrorCode::kUnimplemented,
      absl::StrFormat("optimizer %s has no save() and load() of its own, so a checkpoint "
                      "would be without what it keeps: its class has to override both, "
                      "with nothing in them if it keeps nothing",
                      options_.front().name()));
}

void TorchOptimizer::save(torch::serialize::OutputArchive& archive) const {
  check_has_checkpoints();
  optimizer_->save(archive);
}

void TorchOptimizer::load(torch::serialize::InputArchive& archive) {
  check_has_checkpoints();
  optimizer_->load(archive);
  // LibTorch's take the options of the archive, in which they may keep less.
  for (std::size_t group = 0; group < options_.size(); ++group) {
    set_options(group, options_[group]);
    for (const at::Tensor& parameter : optimizer_->param_groups()[group].params()) {
      const auto state = state_of(optimizer_->state(), parameter);
      if (state == nullptr) continue;
      const char* const option = option_without_state(options_[group], *state);
      if (option == nullptr) continue;
      throw RpcError(ErrorCode::kFailedPrecondition,
                     absl::StrFormat("it was saved without %s, which this %s has: make the "
                                     "optimizer without it",
                                     option, options_[group].name()));
    }
  }
}

}  // namespace sinew::internal
