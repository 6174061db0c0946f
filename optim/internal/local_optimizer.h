#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sinew/optim/checkpoint.h"
#include "sinew/optim/internal/checkpoint_messages.h"
#include "sinew/optim/internal/gradient_norms.h"
#include "sinew/optim/internal/standby_messages.h"
#include "sinew/optim/internal/step_messages.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/method.h"

namespace sinew::internal {

class ChangeQueue;
class OptimizerState;

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
  /// That of which steps are taken.
  Future<Binding> binding();
  /// Takes steps of this binding only, from now on. Throws RpcError kInvalidArgument when `groups`
  /// has other parameters than this, kAborted when there is a greater one.
  /// Without groups they are the same for certain.
  Future<void> bind(const Binding& binding, const std::optional<ParametersByGroup>& groups);
  Future<void> set_learning_rate(std::uint64_t group, double lr);
  /// Throws RpcError kInvalidArgument for those of another optimizer, and for a change that it does
  /// not allow.
  Future<void> set_options(std::uint64_t group, const RRef<optim::Options>& options);
  /// A copy of those that hold.
  Future<optim::Options> options(std::uint64_t group);
  /// Multiplies the gradients that the context has for the parameters, once for each number of an
  /// operation.
  Future<Unscaled> unscale(const autograd::ContextId& context, double factor,
                           std::uint64_t operation);
  /// By group, those that it was made with.
  std::vector<double> initial_learning_rates();

  /// From now on checkpoints have these tensors of this worker in addition to the parameters.
  /// Throws RpcError kInvalidArgument for what is undefined, or no dense tensor.
  Future<void> keep(const std::vector<RRef<at::Tensor>>& tensors);

  // ---- Checkpoints. A trainer draws an id for each save() and load().

  /// What this worker has in the folder.
  CheckpointParts checkpoints(const std::string& folder);
  /// A number for a checkpoint, at least `at_least`, that this worker has not given out before.
  std::uint64_t next_checkpoint(const std::string& folder, std::uint64_t at_least);
  /// Copies what there is between two steps, and begins to write it.
  Future<void> begin_save(const CheckpointPlace& place, const CheckpointNotes& notes);
  /// Done when what has been begun is written and read again. Throws RpcError kNotFound for another
  /// one.
  Future<void> finish_save(const CheckpointId& id);
  /// Removes those with smaller numbers.
  void forget_before(const std::string& folder, std::uint64_t number);
  /// Reads and checks all, changes nothing, and returns what was noted. What is prepared is held
  /// until it is applied or dropped, or another load takes its place.
  Future<CheckpointNotes> prepare_load(const CheckpointPlace& place, std::uint64_t load);
  /// kAborted when another load was prepared since.
  Future<void> apply_load(std::uint64_t load);
  Future<void> drop_load(std::uint64_t load);

  // ---- A standby: the part of the same optimizer at another worker, which has what this one has.

  /// From now on `standby` gets all changes, and from when the future is done on, none is
  /// acknowledged that it has not got. The one before it gets none any more. Fails with RpcError
  /// kInvalidArgument when it is made otherwise than this, kFailedPrecondition after a step that
  /// failed half-way, kUnavailable when it is lost by then: then the one before it stays.
  /// `stream` is what its stand_by() has returned.
  Future<void> add_standby(const RRef<LocalOptimizer>& standby, std::uint64_t stream);
  // Of the standby.
  /// Begins to, and draws a number for the owner's changes, of which others know nothing.
  std::uint64_t stand_by();
  /// Throws RpcError kInvalidArgument when this is made otherwise than its owner.
  Future<void> check_fits(const OwnerMake& make);
  // These may come in any order.
  Future<FollowOutcome> follow_snapshot(const ChangeId& id, const OwnerSnapshot& snapshot);
  Future<FollowOutcome> follow_step(const ChangeId& id, const MirroredStep& step);
  Future<FollowOutcome> follow_options(const ChangeId& id, std::uint64_t group,
                                       const RRef<optim::Options>& options);
  /// It gets no more of them, and must not take over.
  Future<FollowOutcome> dismiss(std::uint64_t stream);
  /// Becomes the owner, and takes steps of this binding. Throws RpcError kFailedPrecondition when
  /// it is no standby, or has not got all, kDataLoss when it has not got the owner's step of the
  /// order `acknowledged`, kAborted when there is a greater binding. May be repeated.
  Future<void> take_over(const Binding& binding, std::uint64_t acknowledged);

 private:
  const std::shared_ptr<OptimizerState> state_;
  const std::shared_ptr<ChangeQueue> changes_;
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
SINEW_METHOD_AS("sinew.optim.binding", &sinew::internal::LocalOptimizer::binding);
SINEW_METHOD_AS("sinew.optim.bind", &sinew::internal::LocalOptimizer::bind);
SINEW_METHOD_AS("sinew.optim.set_learning_rate",
                &sinew::internal::LocalOptimizer::set_learning_rate);
SINEW_METHOD_AS("sinew.optim.unscale", &sinew::internal::LocalOptimizer::unscale);
SINEW_METHOD_AS("sinew.optim.set_options", &sinew::internal::LocalOptimizer::set_options);
SINEW_METHOD_AS("sinew.optim.options", &sinew::internal::LocalOptimizer::options);
SINEW_METHOD_AS("sinew.optim.initial_learning_rates",
                &sinew::internal::LocalOptimizer::initial_learning_rates);
SINEW_METHOD_AS("sinew.optim.checkpoints", &sinew::internal::LocalOptimizer::checkpoints);
SINEW_METHOD_AS("sinew.optim.next_checkpoint", &sinew::internal::LocalOptimizer::next_checkpoint);
SINEW_METHOD_AS("sinew.optim.begin_save", &sinew::internal::LocalOptimizer::begin_save);
SINEW_METHOD_AS("sinew.optim.finish_save", &sinew::internal::LocalOptimizer::finish_save);
SINEW_METHOD_AS("sinew.optim.forget_before", &sinew::internal::LocalOptimizer::forget_before);
SINEW_METHOD_AS("sinew.optim.prepare_load", &sinew::internal::LocalOptimizer::prepare_load);
SINEW_METHOD_AS("sinew.optim.apply_load", &sinew::internal::LocalOptimizer::apply_load);
SINEW_METHOD_AS("sinew.optim.drop_load", &sinew::internal::LocalOptimizer::drop_load);
SINEW_METHOD_AS("sinew.optim.keep", &sinew::internal::LocalOptimizer::keep);
SINEW_METHOD_AS("sinew.optim.add_standby", &sinew::internal::LocalOptimizer::add_standby);
SINEW_METHOD_AS("sinew.optim.stand_by", &sinew::internal::LocalOptimizer::stand_by);
SINEW_METHOD_AS("sinew.optim.check_fits", &sinew::internal::LocalOptimizer::check_fits);
SINEW_METHOD_AS("sinew.optim.follow_snapshot", &sinew::internal::LocalOptimizer::follow_snapshot);
SINEW_METHOD_AS("sinew.optim.follow_step", &sinew::internal::LocalOptimizer::follow_step);
SINEW_METHOD_AS("sinew.optim.follow_options", &sinew::internal::LocalOptimizer::follow_options);
SINEW_METHOD_AS("sinew.optim.dismiss", &sinew::internal::LocalOptimizer::dismiss);
SINEW_METHOD_AS("sinew.optim.take_over", &sinew::internal::LocalOptimizer::take_over);
