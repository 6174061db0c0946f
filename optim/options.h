#pragma once

#include <cstddef>
#include <string>
#include <tuple>
#include <variant>

#include "sinew/rpc/wire/codec.h"

/// What the optimizers can be told: the fields and defaults of LibTorch's C++ frontend, and where
/// it has no such optimizer (Adadelta, Adamax, Rprop) those of PyTorch.
///
///     sinew::optim::AdamOptions adam;
///     adam.lr = 3e-4;
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

/// Which optimizer, and how it is set.
using Options = std::variant<SgdOptions, AdamOptions, AdamWOptions, AdagradOptions, RmsPropOptions,
                             AdadeltaOptions, AdamaxOptions, RpropOptions>;

/// `SGD`, `Adam`, ...
std::string name_of(const Options& options);
double learning_rate(const Options& options);
void set_learning_rate(Options& options, double lr);

/// Throws RpcError kInvalidArgument that names the optimizer, the field and its value when the
/// options make no sense.
void check(const Options& options);

}  // namespace sinew::optim

namespace sinew {

SINEW_STRUCT(sinew::optim::SgdOptions, lr, momentum, dampening, weight_decay, nesterov);
SINEW_STRUCT(sinew::optim::AdamOptions, lr, betas, eps, weight_decay, amsgrad);
SINEW_STRUCT(sinew::optim::AdamWOptions, lr, betas, eps, weight_decay, amsgrad);
SINEW_STRUCT(sinew::optim::AdagradOptions, lr, lr_decay, weight_decay, initial_accumulator_value,
             eps);
SINEW_STRUCT(sinew::optim::RmsPropOptions, lr, alpha, eps, weight_decay, momentum, centered);
SINEW_STRUCT(sinew::optim::AdadeltaOptions, lr, rho, eps, weight_decay);
SINEW_STRUCT(sinew::optim::AdamaxOptions, lr, betas, eps, weight_decay);
SINEW_STRUCT(sinew::optim::RpropOptions, lr, etas, step_sizes);

/// The optimizer's name, then its options.
template <>
struct Codec<optim::Options> {
  static void encode(ValueWriter& writer, const optim::Options& options);
  static optim::Options decode(const ValueReader& reader);
  static std::string signature() { return "optim.options"; }
};

}  // namespace sinew
