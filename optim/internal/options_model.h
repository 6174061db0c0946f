#pragma once

#include <memory>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "sinew/rpc/worker.h"
#include "sinew/rref/rref.h"

namespace torch::optim {
class Optimizer;
class OptimizerOptions;
class OptimizerParamGroup;
}  // namespace torch::optim

namespace sinew {
class ValueReader;
class ValueWriter;
}  // namespace sinew
namespace sinew::optim {
class Options;
}  // namespace sinew::optim

namespace sinew::internal {

/// Options of one type, and what is known of the optimizer that is set so. Constant.
class OptionsModel {
 public:
  virtual ~OptionsModel() = default;

  /// The optimizer's.
  virtual std::string_view name() const = 0;
  virtual const std::type_info& type() const = 0;
  virtual const void* fields() const = 0;

  virtual double learning_rate() const = 0;
  virtual std::shared_ptr<const OptionsModel> with_learning_rate(double lr) const = 0;
  /// Throws RpcError kInvalidArgument.
  virtual void check() const = 0;
  /// Throws RpcError kInvalidArgument when an optimizer that was made with these cannot go on with
  /// `next`, which are of the same type.
  virtual void check_change(const OptionsModel& next) const = 0;
  virtual bool takes_sparse_gradients() const = 0;
  /// Whether the optimizer saves and loads what it keeps: its class overrides both.
  virtual bool has_checkpoints() const = 0;

  /// The fields, and a model of those that were written.
  virtual void write(ValueWriter& writer) const = 0;
  virtual std::shared_ptr<const OptionsModel> read(const ValueReader& reader) const = 0;

  /// Makes them at another worker, which must serve the optimizer.
  virtual RRef<optim::Options> copy_to(const Peer& owner) const = 0;

  // ---- What LibTorch is given.

  virtual std::unique_ptr<torch::optim::OptimizerOptions> torch_options() const = 0;
  /// Groups have options of their own.
  virtual std::unique_ptr<torch::optim::Optimizer> make_optimizer(
      std::vector<torch::optim::OptimizerParamGroup> groups) const = 0;
};

}  // namespace sinew::internal
