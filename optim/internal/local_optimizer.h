#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sinew/optim/checkpoint.h"
#include "sinew/optim/internal/step_messages.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/method.h"

namespace sinew::internal {

/// The part of one distributed optimizer that lives with the parameters of one worker. Trainers
/// hold it by reference and call its methods. No two pieces of work on the same parameter run at
/// once, whichever optimizer of the worker they belong to. Thread-safe.
class LocalOptimizer {
 public:
  /// In a handler. Waits until the parameters are made. Throws RpcError kInvalidArgument for what
  /// cannot be optimized; the text names the group and the parameter.
  explicit LocalOptimizer(const std::vector<OptimizerGroup>& groups);

  /// Applies the gradients of a context to the parameters that have one, unless it has applied the
  /// step before: then the answer is that of the first time.
  Future<StepAnswer> step(const StepRequest& request);
  Future<void> set_learning_rate(std::uint64_t group, double lr);

  /// Numbers of the checkpoints that this worker has in the folder.
  std::vector<std::uint64_t> checkpoints(const std::string& folder);
  Future<void> save(const CheckpointPlace& place, const std::string& note);
  /// Removes those with smaller numbers.
  void forget_before(const CheckpointPlace& place);
  /// Returns the note. When it throws, nothing has changed.
  Future<std::string> load(const CheckpointPlace& place);

 private:
  class State;
  const std::shared_ptr<State> state_;
};

}  // namespace sinew::internal

namespace sinew {

// Served by every worker with the optimizer layer, not by its method table.
template <>
struct ConstructorName<internal::LocalOptimizer(std::vector<internal::OptimizerGroup>)> {
  static constexpr std::string_view value = "sinew.optim.make";
};

}  // namespace sinew

SINEW_METHOD_AS("sinew.optim.step", &sinew::internal::LocalOptimizer::step);
SINEW_METHOD_AS("sinew.optim.set_learning_rate",
                &sinew::internal::LocalOptimizer::set_learning_rate);
SINEW_METHOD_AS("sinew.optim.checkpoints", &sinew::internal::LocalOptimizer::checkpoints);
SINEW_METHOD_AS("sinew.optim.save", &sinew::internal::LocalOptimizer::save);
SINEW_METHOD_AS("sinew.optim.forget_before", &sinew::internal::LocalOptimizer::forget_before);
SINEW_METHOD_AS("sinew.optim.load", &sinew::internal::LocalOptimizer::load);
