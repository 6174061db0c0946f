#include "sinew/optim/internal/torch_optimizer.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/optim/internal/more_optimizers.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

torch::optim::SGDOptions translate(const optim::SgdOptions& options) {
  return torch::optim::SGDOptions(options.lr)
      .momentum(options.momentum)
      .dampening(options.dampening)
      .weight_decay(options.weight_decay)
      .nesterov(options.nesterov);
}

template <class Translated, class From>
Translated translate_adam(const From& options) {
  return Translated(options.lr)
      .betas(options.betas)
      .eps(options.eps)
      .weight_decay(options.weight_decay)
      .amsgrad(options.amsgrad);
}
torch::optim::AdamOptions translate(const optim::AdamOptions& options) {
  return translate_adam<torch::optim::AdamOptions>(options);
}
torch::optim::AdamWOptions translate(const optim::AdamWOptions& options) {
  return translate_adam<torch::optim::AdamWOptions>(options);
}

torch::optim::AdagradOptions translate(const optim::AdagradOptions& options) {
  return torch::optim::AdagradOptions(options.lr)
      .lr_decay(options.lr_decay)
      .weight_decay(options.weight_decay)
      .initial_accumulator_value(options.initial_accumulator_value)
      .eps(options.eps);
}

torch::optim::RMSpropOptions translate(const optim::RmsPropOptions& options) {
  return torch::optim::RMSpropOptions(options.lr)
      .alpha(options.alpha)
      .eps(options.eps)
      .weight_decay(options.weight_decay)
      .momentum(options.momentum)
      .centered(options.centered);
}

// Ours keep their options as they are.
template <class T>
PlainOptions<T> translate(const T& options) {
  return PlainOptions<T>(options);
}

template <class T>
struct OptimizerOf {
  using type = PlainOptimizer<T>;
};
template <>
struct OptimizerOf<optim::SgdOptions> {
  using type = torch::optim::SGD;
};
template <>
struct OptimizerOf<optim::AdamOptions> {
  using type = torch::optim::Adam;
};
template <>
struct OptimizerOf<optim::AdamWOptions> {
  using type = torch::optim::AdamW;
};
template <>
struct OptimizerOf<optim::AdagradOptions> {
  using type = torch::optim::Adagrad;
};
template <>
struct OptimizerOf<optim::RmsPropOptions> {
  using type = torch::optim::RMSprop;
};

template <class T>
std::unique_ptr<Optimizer> make_of(const std::vector<TorchOptimizer::Group>& groups) {
  using Translated = std::decay_t<decltype(translate(std::declval<T>()))>;
  std::vector<OptimizerParamGroup> translated;
  for (const TorchOptimizer::Group& group : groups) {
    const T* options = std::get_if<T>(&group.options);
    if (options == nullptr) {
      throw RpcError(
          ErrorCode::kInvalidArgument,
          absl::StrFormat("the groups of one optimizer are of one kind, but there are "
                          "%s and %s",
                          optim::name_of(groups.front().options), optim::name_of(group.options)));
    }
    translated.emplace_back(group.parameters, std::make_unique<Translated>(translate(*options)));
  }
  return std::make_unique<typename OptimizerOf<T>::type>(
      std::move(translated), translate(std::get<T>(groups.front().options)));
}

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

std::unique_ptr<Optimizer> make(const std::vector<TorchOptimizer::Group>& groups) {
  return std::visit(
      [&groups](const auto& first) { return make_of<std::decay_t<decltype(first)>>(groups); },
      groups.front().options);
}

}  // namespace

TorchOptimizer::TorchOptimizer(const std::vector<Group>& groups) : optimizer_(make(groups)) {}

TorchOptimizer::~TorchOptimizer() = default;

std::string TorchOptimizer::refusal(const optim::Options& options, const at::Tensor& parameter,
                                    const at::Tensor& gradient) {
  if (!gradient.sizes().equals(parameter.sizes())) return "its gradient has another shape";
  if (gradient.device() != parameter.device()) return "its gradient is on another device";
  if (!gradient.is_sparse()) return "";
  double decay = 0;
  if (const auto* sgd = std::get_if<optim::SgdOptions>(&options)) {
    decay = sgd->weight_decay;
  } else if (const auto* adagrad = std::get_if<optim::AdagradOptions>(&options)) {
    decay = adagrad->weight_decay;
  } else {
    return absl::StrFormat(
        "its gradient is sparse, which %s does not take: use SGD or Adagrad for it, in an "
        "optimizer "
        "of its own, or make the embedding dense",
        optim::name_of(options));
  }
  if (decay != 0) return "its gradient is sparse, which does not go with weight_decay";
  return "";
}

void TorchOptimizer::step() { optimizer_->step(); }

void TorchOptimizer::set_learning_rate(std::size_t group, double lr) {
  optimizer_->param_groups().at(group).options().set_lr(lr);
}

std::size_t TorchOptimizer::state_bytes() const {
  if (const auto* ours = dynamic_cast<const StatefulOptimizer*>(optimizer_.get())) {
    return ours->state_bytes();
  }
  std::size_t bytes = 0;
  for (const auto& [parameter, state] : optimizer_->state()) {
    for (const at::Tensor& tensor : tensors_of(*state)) bytes += tensor.nbytes();
  }
  return bytes;
}

void TorchOptimizer::save(torch::serialize::OutputArchive& archive) const {
  optimizer_->save(archive);
}

void TorchOptimizer::load(torch::serialize::InputArchive& archive) { optimizer_->load(archive); }

}  // namespace sinew::internal
