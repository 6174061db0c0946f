#pragma once

#include <torch/optim/optimizer.h>

#include <cmath>
#include <memory>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "sinew/optim/internal/layer.h"
#include "sinew/optim/internal/options_model.h"
#include "sinew/optim/options.h"
#include "sinew/optim/per_parameter_optimizer.h"
#include "sinew/rpc/method_table.h"
#include "sinew/rref/remote.h"

/// Optimizers of your own. Their options are a struct of fields, among them `double lr`; the
/// optimizer says what becomes of one parameter:
///
///     namespace app {
///     struct LionOptions {
///       double lr = 1e-4;
///       double beta = 0.9;
///     };
///     class Lion final : public sinew::optim::PerParameterOptimizer<LionOptions> {
///      public:
///       using PerParameterOptimizer::PerParameterOptimizer;
///
///      private:
///       void update(const LionOptions& options, at::Tensor& parameter, const at::Tensor& gradient,
///                   sinew::optim::ParameterState& state) override {
///         at::Tensor& average = state["average"];
///         if (!average.defined()) average = at::zeros_like(parameter);
///         average.mul_(options.beta).add_(gradient, 1 - options.beta);
///         parameter.sub_(average.sign() * options.lr);
///       }
///     };
///     }  // namespace app
///     SINEW_STRUCT(app::LionOptions, lr, beta);
///     SINEW_OPTIMIZER(app::Lion, app::LionOptions);  // at global scope, behind both
///
///     sinew::serve<app::Lion>();  // at the owners of parameters
///     sinew::optim::DistributedOptimizer optimizer(parameters, app::LionOptions());
///
/// Any other torch::optim::Optimizer will do as well that has:
/// - a constructor of `(std::vector<torch::optim::OptimizerParamGroup>, O)`, as LibTorch's have;
/// - a static function `O torch_options(const LionOptions&)`, where O derives from
///   torch::optim::OptimizerOptions; and the other functions of OptimizerRules, mostly by deriving
///   from that too;
/// - save() and load(): checkpoints have what these write. Without them a checkpoint is refused;
///   those of an optimizer that keeps nothing do nothing.
///
/// It is given the parameters of one owner, each with a grad() or none, and steps those that have
/// one; it may change a grad() in place. Groups always have options. Its steps run one at a time,
/// with gradients disabled.
#define SINEW_OPTIMIZER(Optimizer, Options)                                               \
  SINEW_INTERNAL_AT_GLOBAL_SCOPE("SINEW_OPTIMIZER");                                      \
  SINEW_INTERNAL_NAME_OPTIONS(Options, #Optimizer, #Optimizer, #Optimizer "::(options)"); \
  SINEW_INTERNAL_OPTIMIZER_OF(Options, Optimizer);                                        \
  template <>                                                                             \
  inline constexpr sinew::internal::OptimizerService<Options> sinew::kService<Optimizer> {}
#define SINEW_INTERNAL_OPTIMIZER_OF(Options, Optimizer) \
  template <>                                           \
  struct sinew::internal::OptimizerClassOf<Options> {   \
    using type = Optimizer;                             \
  }

namespace sinew::internal {

template <class Fields>
struct OptimizerClassOf {};

/// Throws RpcError kInvalidArgument.
void check_learning_rate(std::string_view optimizer, double lr);

/// Whether a class has save() and load() of its own. LibTorch's do nothing.
template <class Optimizer, class = void>
struct OverridesSaveAndLoad : std::true_type {};
template <class Optimizer>
struct OverridesSaveAndLoad<Optimizer,
                            std::void_t<decltype(&Optimizer::save), decltype(&Optimizer::load)>>
    : std::bool_constant<
          !std::is_same_v<decltype(&Optimizer::save), decltype(&torch::optim::Optimizer::save)> &&
          !std::is_same_v<decltype(&Optimizer::load), decltype(&torch::optim::Optimizer::load)>> {};

template <class Fields>
class OptionsModelOf final : public OptionsModel {
 public:
  explicit OptionsModelOf(const Fields& fields) : fields_(fields) {}

  std::string_view name() const override { return optim::OptimizerName<Fields>::value; }
  const std::type_info& type() const override { return typeid(Fields); }
  const void* fields() const override { return &fields_; }
  double learning_rate() const override { return fields_.lr; }
  std::shared_ptr<const OptionsModel> with_learning_rate(double lr) const override {
    Fields changed = fields_;
    changed.lr = lr;
    return std::make_shared<OptionsModelOf>(changed);
  }
  void check() const override {
    check_learning_rate(name(), fields_.lr);
    Optimizer::check(fields_);
  }
  void check_change(const OptionsModel& next) const override {
    Optimizer::check_change(fields_, *static_cast<const Fields*>(next.fields()));
  }
  bool takes_sparse_gradients() const override {
    return Optimizer::takes_sparse_gradients(fields_);
  }
  bool has_checkpoints() const override { return OverridesSaveAndLoad<Optimizer>::value; }
  void write(ValueWriter& writer) const override { Codec<Fields>::encode(writer, fields_); }
  std::shared_ptr<const OptionsModel> read(const ValueReader& reader) const override {
    return std::make_shared<OptionsModelOf>(Codec<Fields>::decode(reader));
  }
  RRef<optim::Options> copy_to(const Peer& owner) const override {
    return owner.remote<optim::Options(Fields)>(fields_);
  }
  std::unique_ptr<torch::optim::OptimizerOptions> torch_options() const override {
    return std::make_unique<TorchOptions>(Optimizer::torch_options(fields_));
  }
  std::unique_ptr<torch::optim::Optimizer> make_optimizer(
      std::vector<torch::optim::OptimizerParamGroup> groups) const override {
    return std::make_unique<Optimizer>(std::move(groups), Optimizer::torch_options(fields_));
  }

 private:
  using Optimizer = typename OptimizerClassOf<Fields>::type;
  using TorchOptions = std::decay_t<decltype(Optimizer::torch_options(std::declval<Fields>()))>;
  static_assert(std::is_base_of_v<torch::optim::Optimizer, Optimizer>,
                "Sinew: the optimizer that SINEW_OPTIMIZER names derives from "
                "torch::optim::Optimizer, or from sinew::optim::PerParameterOptimizer<Options>");

  const Fields fields_;
};

template <class Fields>
std::shared_ptr<const OptionsModel> make_options_model(const Fields& fields) {
  return std::make_shared<OptionsModelOf<Fields>>(fields);
}

/// What SINEW_OPTIMIZER says of a class.
template <class Fields>
struct OptimizerService {
  template <class Table>
  static void add_to(Table& methods, const MethodRules& rules) {
    methods.template add_constructor<optim::Options(Fields)>(rules);
    methods.template add<&optim::Options::as<Fields>>(rules);
  }
};

}  // namespace sinew::internal
