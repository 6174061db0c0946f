#include "sinew/optim/options.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"

namespace sinew::optim {
namespace {

constexpr const char* kNames[] = {"SGD",     "Adam",     "AdamW",  "Adagrad",
                                  "RMSprop", "Adadelta", "Adamax", "Rprop"};
static_assert(std::size(kNames) == std::variant_size_v<Options>);

/// Refuses fields that are out of their range.
class Checker {
 public:
  explicit Checker(const Options& options) : name_(name_of(options)) {}

  // Written so that NaN is refused.
  void not_negative(const char* field, double value) const {
    require(value >= 0 && std::isfinite(value), field, value, "0 or more");
  }
  void fraction(const char* field, double value) const {
    require(value >= 0 && value < 1, field, value, "0 or more, and less than 1");
  }
  void fractions(const char* field, const std::tuple<double, double>& both) const {
    fraction(field, std::get<0>(both));
    fraction(field, std::get<1>(both));
  }
  void require(bool right, const char* field, double value, const char* want) const {
    if (right) return;
    throw RpcError(
        ErrorCode::kInvalidArgument,
        absl::StrFormat("optimizer %s: %s is %g, but it must be %s", name_, field, value, want));
  }

  void operator()(const SgdOptions& options) const {
    not_negative("momentum", options.momentum);
    not_negative("weight_decay", options.weight_decay);
    require(std::isfinite(options.dampening), "dampening", options.dampening, "finite");
    if (!options.nesterov) return;
    require(options.momentum > 0, "momentum", options.momentum, "positive with nesterov");
    require(options.dampening == 0, "dampening", options.dampening, "0 with nesterov");
  }
  void operator()(const AdamOptions& options) const { adam(options); }
  void operator()(const AdamWOptions& options) const { adam(options); }
  void operator()(const AdamaxOptions& options) const { adam(options); }
  void operator()(const AdagradOptions& options) const {
    not_negative("lr_decay", options.lr_decay);
    not_negative("weight_decay", options.weight_decay);
    not_negative("initial_accumulator_value", options.initial_accumulator_value);
    not_negative("eps", options.eps);
  }
  void operator()(const RmsPropOptions& options) const {
    not_negative("alpha", options.alpha);
    not_negative("eps", options.eps);
    not_negative("weight_decay", options.weight_decay);
    not_negative("momentum", options.momentum);
  }
  void operator()(const AdadeltaOptions& options) const {
    require(options.rho >= 0 && options.rho <= 1, "rho", options.rho, "from 0 to 1");
    not_negative("eps", options.eps);
    not_negative("weight_decay", options.weight_decay);
  }
  void operator()(const RpropOptions& options) const {
    const auto [down, up] = options.etas;
    require(down > 0 && down < 1, "etas", down, "between 0 and 1 (the first)");
    require(up > 1 && std::isfinite(up), "etas", up, "more than 1 (the second)");
    const auto [least, most] = options.step_sizes;
    not_negative("step_sizes", least);
    require(most >= least, "step_sizes", most, "not less than the first (the second)");
  }

 private:
  template <class T>
  void adam(const T& options) const {
    fractions("betas", options.betas);
    not_negative("eps", options.eps);
    not_negative("weight_decay", options.weight_decay);
  }

  const std::string name_;
};

}  // namespace

std::string name_of(const Options& options) { return kNames[options.index()]; }

double learning_rate(const Options& options) {
  return std::visit([](const auto& chosen) { return chosen.lr; }, options);
}

void set_learning_rate(Options& options, double lr) {
  std::visit([lr](auto& chosen) { chosen.lr = lr; }, options);
}

void check(const Options& options) {
  const Checker checker(options);
  checker.not_negative("lr", learning_rate(options));
  std::visit(checker, options);
}

}  // namespace sinew::optim

namespace sinew {
namespace {

using optim::Options;

template <std::size_t kIndex = 0>
Options decode_named(const std::string& name, const ListReader& list, const ValueReader& reader) {
  if constexpr (kIndex == std::variant_size_v<Options>) {
    reader.fail("there is no optimizer of this name");
  } else {
    if (name != optim::kNames[kIndex]) return decode_named<kIndex + 1>(name, list, reader);
    return Codec<std::variant_alternative_t<kIndex, Options>>::decode(list.item(1));
  }
}

}  // namespace

void Codec<Options>::encode(ValueWriter& writer, const Options& options) {
  ListWriter list = writer.list(2);
  list.next().text(optim::name_of(options));
  ValueWriter fields = list.next();
  std::visit(
      [&fields](const auto& chosen) {
        Codec<std::decay_t<decltype(chosen)>>::encode(fields, chosen);
      },
      options);
}

Options Codec<Options>::decode(const ValueReader& reader) {
  const ListReader list = reader.list(2);
  return decode_named(std::string(list.item(0).text()), list, reader);
}

}  // namespace sinew
