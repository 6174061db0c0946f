#include "sinew/optim/internal/built_in_optimizers.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "sinew/optim/internal/field_checker.h"
#include "sinew/optim/internal/more_optimizers.h"
#include "sinew/optim/optimizer.h"
#include "sinew/rpc/calls/serve.h"

// LibTorch's optimizers, with options that can travel.
namespace sinew::internal {
namespace {

using optim::OptimizerRules;

template <class Fields>
FieldChecker checker() {
  return FieldChecker(optim::OptimizerName<Fields>::value);
}

class Sgd final : public torch::optim::SGD, public OptimizerRules<optim::SgdOptions> {
 public:
  using SGD::SGD;

  static torch::optim::SGDOptions torch_options(const optim::SgdOptions& options) {
    return torch::optim::SGDOptions(options.lr)
        .momentum(options.momentum)
        .dampening(options.dampening)
        .weight_decay(options.weight_decay)
        .nesterov(options.nesterov);
  }
  static void check(const optim::SgdOptions& options) {
    const FieldChecker fields = checker<optim::SgdOptions>();
    fields.not_negative("momentum", options.momentum);
    fields.not_negative("weight_decay", options.weight_decay);
    fields.require(std::isfinite(options.dampening), "dampening", options.dampening, "finite");
    if (!options.nesterov) return;
    fields.require(options.momentum > 0, "momentum", options.momentum, "positive with nesterov");
    fields.require(options.dampening == 0, "dampening", options.dampening, "0 with nesterov");
  }
  static bool takes_sparse_gradients(const optim::SgdOptions& options) {
    return options.weight_decay == 0;
  }
};

/// Adam and AdamW, whose options have the same fields.
template <class Optimizer, class TorchOptions, class Fields>
class AdamLike final : public Optimizer, public OptimizerRules<Fields> {
 public:
  using Optimizer::Optimizer;

  static TorchOptions torch_options(const Fields& options) {
    return TorchOptions(options.lr)
        .betas(options.betas)
        .eps(options.eps)
        .weight_decay(options.weight_decay)
        .amsgrad(options.amsgrad);
  }
  static void check(const Fields& options) {
    const FieldChecker fields = checker<Fields>();
    fields.fractions("betas", options.betas);
    fields.not_negative("eps", options.eps);
    fields.not_negative("weight_decay", options.weight_decay);
  }
  static void check_change(const Fields& now, const Fields& next) {
    checker<Fields>().not_switched_on("amsgrad", now.amsgrad ? 1 : 0, next.amsgrad ? 1 : 0);
  }
};

class Adagrad final : public torch::optim::Adagrad, public OptimizerRules<optim::AdagradOptions> {
 public:
  using torch::optim::Adagrad::Adagrad;

  static torch::optim::AdagradOptions torch_options(const optim::AdagradOptions& options) {
    return torch::optim::AdagradOptions(options.lr)
        .lr_decay(options.lr_decay)
        .weight_decay(options.weight_decay)
        .initial_accumulator_value(options.initial_accumulator_value)
        .eps(options.eps);
  }
  static void check(const optim::AdagradOptions& options) {
    const FieldChecker fields = checker<optim::AdagradOptions>();
    fields.not_negative("lr_decay", options.lr_decay);
    fields.not_negative("weight_decay", options.weight_decay);
    fields.not_negative("initial_accumulator_value", options.initial_accumulator_value);
    fields.not_negative("eps", options.eps);
  }
  static bool takes_sparse_gradients(const optim::AdagradOptions& options) {
    return options.weight_decay == 0;
  }
};

class RmsProp final : public torch::optim::RMSprop, public OptimizerRules<optim::RmsPropOptions> {
 public:
  using RMSprop::RMSprop;

  static torch::optim::RMSpropOptions torch_options(const optim::RmsPropOptions& options) {
    return torch::optim::RMSpropOptions(options.lr)
        .alpha(options.alpha)
        .eps(options.eps)
        .weight_decay(options.weight_decay)
        .momentum(options.momentum)
        .centered(options.centered);
  }
  static void check(const optim::RmsPropOptions& options) {
    const FieldChecker fields = checker<optim::RmsPropOptions>();
    fields.not_negative("alpha", options.alpha);
    fields.not_negative("eps", options.eps);
    fields.not_negative("weight_decay", options.weight_decay);
    fields.not_negative("momentum", options.momentum);
  }
  static void check_change(const optim::RmsPropOptions& now, const optim::RmsPropOptions& next) {
    const FieldChecker fields = checker<optim::RmsPropOptions>();
    fields.not_switched_on("momentum", now.momentum, next.momentum);
    fields.not_switched_on("centered", now.centered ? 1 : 0, next.centered ? 1 : 0);
  }
};

using Adam = AdamLike<torch::optim::Adam, torch::optim::AdamOptions, optim::AdamOptions>;
using AdamW = AdamLike<torch::optim::AdamW, torch::optim::AdamWOptions, optim::AdamWOptions>;

}  // namespace
}  // namespace sinew::internal

SINEW_INTERNAL_OPTIMIZER_OF(sinew::optim::SgdOptions, sinew::internal::Sgd);
SINEW_INTERNAL_OPTIMIZER_OF(sinew::optim::AdamOptions, sinew::internal::Adam);
SINEW_INTERNAL_OPTIMIZER_OF(sinew::optim::AdamWOptions, sinew::internal::AdamW);
SINEW_INTERNAL_OPTIMIZER_OF(sinew::optim::AdagradOptions, sinew::internal::Adagrad);
SINEW_INTERNAL_OPTIMIZER_OF(sinew::optim::RmsPropOptions, sinew::internal::RmsProp);
SINEW_INTERNAL_OPTIMIZER_OF(sinew::optim::AdadeltaOptions, sinew::internal::Adadelta);
SINEW_INTERNAL_OPTIMIZER_OF(sinew::optim::AdamaxOptions, sinew::internal::Adamax);
SINEW_INTERNAL_OPTIMIZER_OF(sinew::optim::RpropOptions, sinew::internal::Rprop);

namespace sinew::internal {

template std::shared_ptr<const OptionsModel> make_options_model(const optim::SgdOptions&);
template std::shared_ptr<const OptionsModel> make_options_model(const optim::AdamOptions&);
template std::shared_ptr<const OptionsModel> make_options_model(const optim::AdamWOptions&);
template std::shared_ptr<const OptionsModel> make_options_model(const optim::AdagradOptions&);
template std::shared_ptr<const OptionsModel> make_options_model(const optim::RmsPropOptions&);
template std::shared_ptr<const OptionsModel> make_options_model(const optim::AdadeltaOptions&);
template std::shared_ptr<const OptionsModel> make_options_model(const optim::AdamaxOptions&);
template std::shared_ptr<const OptionsModel> make_options_model(const optim::RpropOptions&);

namespace {

template <class... Fields>
std::vector<Extension::Method> methods_of() {
  std::vector<Extension::Method> methods;
  (methods.push_back({ConstructorName<optim::Options(Fields)>::value,
                      &serve_constructor<optim::Options(Fields)>}),
   ...);
  (methods.push_back({MethodName<&optim::Options::as<Fields>>::value,
                      &serve_method<&optim::Options::as<Fields>>}),
   ...);
  return methods;
}

}  // namespace

std::vector<Extension::Method> built_in_optimizer_methods() {
  return methods_of<optim::SgdOptions, optim::AdamOptions, optim::AdamWOptions,
                    optim::AdagradOptions, optim::RmsPropOptions, optim::AdadeltaOptions,
                    optim::AdamaxOptions, optim::RpropOptions>();
}

}  // namespace sinew::internal
