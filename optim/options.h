#pragma once

#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "sinew/rpc/method.h"
#include "sinew/rpc/wire/codec.h"

/// What the optimizers can be told: the fields and defaults of LibTorch's C++ frontend, and where
/// it has no such optimizer (Adadelta, Adamax, Rprop) those of PyTorch.
///
///     sinew::optim::AdamOptions adam;
///     adam.lr = 3e-4;
///
/// Those of optimizers of your own are structs like these: see sinew/optim/optimizer.h.
namespace sinew::optim {

struct SgdOptions {
  double lr = 1e-2;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

struct AdamOptions {
  double lr = 1e-3;
  std::tuple<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
};

struct AdamWOptions {
  double lr = 1e-3;
  std::tuple<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
};

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
};

struct RmsPropOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
};

struct AdadeltaOptions {
  double lr = 1.0;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
};

struct AdamaxOptions {
  double lr = 2e-3;
  std::tuple<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
};

struct RpropOptions {
  double lr = 1e-2;
  std::tuple<double, double> etas = {0.5, 1.2};
  std::tuple<double, double> step_sizes = {1e-6, 50};
};

/// Only there so that its use ends in a sentence.
struct LbfgsOptions {};

/// Specialised by SINEW_OPTIMIZER: the name of the optimizer that is set so.
template <class Fields>
struct OptimizerName {};

}  // namespace sinew::optim

namespace sinew::internal {

class OptionsModel;

template <class Fields, class = void>
inline constexpr bool has_learning_rate_v = false;
template <class Fields>
inline constexpr bool
    has_learning_rate_v<Fields, std::enable_if_t<std::is_same_v<decltype(Fields::lr), double>>> =
        true;

/// Defined in sinew/optim/optimizer.h.
template <class Fields>
std::shared_ptr<const OptionsModel> make_options_model(const Fields& fields);

extern template std::shared_ptr<const OptionsModel> make_options_model(const optim::SgdOptions&);
extern template std::shared_ptr<const OptionsModel> make_options_model(const optim::AdamOptions&);
extern template std::shared_ptr<const OptionsModel> make_options_model(const optim::AdamWOptions&);
extern template std::shared_ptr<const OptionsModel> make_options_model(
    const optim::AdagradOptions&);
extern template std::shared_ptr<const OptionsModel> make_options_model(
    const optim::RmsPropOptions&);
extern template std::shared_ptr<const OptionsModel> make_options_model(
    const optim::AdadeltaOptions&);
extern template std::shared_ptr<const OptionsModel> make_options_model(const optim::AdamaxOptions&);
extern template std::shared_ptr<const OptionsModel> make_options_model(const optim::RpropOptions&);

}  // namespace sinew::internal

namespace sinew::optim {

/// Which optimizer, and how it is set: any of the structs above, or one that SINEW_OPTIMIZER has
/// named. A value, which is cheap to copy.
class Options {
 public:
  /// SgdOptions().
  Options() : Options(SgdOptions()) {}
  template <class Fields, class = std::enable_if_t<internal::has_learning_rate_v<Fields>>>
  Options(const Fields& fields) {  // NOLINT: an optimizer is given a struct
    static_assert(
        internal::has_value_v<OptimizerName<Fields>>,
        "Sinew: no optimizer with these options has a name here: include "
        "sinew/optim/optimizer.h and write SINEW_OPTIMIZER(Optimizer, Options); at global "
        "scope, behind both and before the first use");
    if constexpr (internal::has_value_v<OptimizerName<Fields>>) {
      model_ = internal::make_options_model(fields);
    }
  }

  /// The optimizer's: `SGD`, `Adam`, `app::Lion`.
  std::string_view name() const;
  double learning_rate() const;
  void set_learning_rate(double lr);
  /// Null when they are of another type.
  template <class Fields>
  const Fields* get_if() const {
    return static_cast<const Fields*>(find(typeid(Fields)));
  }
  /// Throws RpcError kInvalidArgument that names both when they are of another optimizer.
  template <class Fields>
  Fields as() const {
    if (const Fields* fields = get_if<Fields>()) return *fields;
    throw_other(OptimizerName<Fields>::value);
  }

  /// Throws RpcError kInvalidArgument that names the optimizer, the field and its value when the
  /// options make no sense.
  void check() const;

  /// For the layers of Sinew.
  explicit Options(std::shared_ptr<const internal::OptionsModel> model)
      : model_(std::move(model)) {}
  const internal::OptionsModel& model() const { return *model_; }

 private:
  const void* find(const std::type_info& type) const;
  [[noreturn]] void throw_other(std::string_view wanted) const;

  std::shared_ptr<const internal::OptionsModel> model_;
};

}  // namespace sinew::optim

SINEW_STRUCT(sinew::optim::SgdOptions, lr, momentum, dampening, weight_decay, nesterov);
SINEW_STRUCT(sinew::optim::AdamOptions, lr, betas, eps, weight_decay, amsgrad);
SINEW_STRUCT(sinew::optim::AdamWOptions, lr, betas, eps, weight_decay, amsgrad);
SINEW_STRUCT(sinew::optim::AdagradOptions, lr, lr_decay, weight_decay, initial_accumulator_value,
             eps);
SINEW_STRUCT(sinew::optim::RmsPropOptions, lr, alpha, eps, weight_decay, momentum, centered);
SINEW_STRUCT(sinew::optim::AdadeltaOptions, lr, rho, eps, weight_decay);
SINEW_STRUCT(sinew::optim::AdamaxOptions, lr, betas, eps, weight_decay);
SINEW_STRUCT(sinew::optim::RpropOptions, lr, etas, step_sizes);

/// What travels is the struct: it makes an Options at the owner, and is read back from there.
#define SINEW_INTERNAL_NAME_OPTIONS(Fields, name, made_as, read_as) \
  template <>                                                       \
  struct sinew::optim::OptimizerName<Fields> {                      \
    static constexpr std::string_view value = name;                 \
  };                                                                \
  template <>                                                       \
  struct sinew::ConstructorName<sinew::optim::Options(Fields)> {    \
    static constexpr std::string_view value = made_as;              \
  };                                                                \
  template <>                                                       \
  struct sinew::MethodName<&sinew::optim::Options::as<Fields>> {    \
    static constexpr std::string_view value = read_as;              \
  }
#define SINEW_INTERNAL_NAME_BUILT_IN(Fields, name)                                  \
  SINEW_INTERNAL_NAME_OPTIONS(sinew::optim::Fields, name, "sinew.optim.make." name, \
                              "sinew.optim.read." name)

SINEW_INTERNAL_NAME_BUILT_IN(SgdOptions, "SGD");
SINEW_INTERNAL_NAME_BUILT_IN(AdamOptions, "Adam");
SINEW_INTERNAL_NAME_BUILT_IN(AdamWOptions, "AdamW");
SINEW_INTERNAL_NAME_BUILT_IN(AdagradOptions, "Adagrad");
SINEW_INTERNAL_NAME_BUILT_IN(RmsPropOptions, "RMSprop");
SINEW_INTERNAL_NAME_BUILT_IN(AdadeltaOptions, "Adadelta");
SINEW_INTERNAL_NAME_BUILT_IN(AdamaxOptions, "Adamax");
SINEW_INTERNAL_NAME_BUILT_IN(RpropOptions, "Rprop");
