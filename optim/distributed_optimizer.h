#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/autograd/context.h"
#include "sinew/optim/checkpoint.h"
#include "sinew/optim/options.h"
#include "sinew/optim/parameter_rrefs.h"
#include "sinew/optim/partial_step.h"
#include "sinew/rref/remote.h"
#include "sinew/rref/rref.h"

namespace sinew::optim {

/// Parameters that are optimized with the same options, as torch::optim::OptimizerParamGroup. They
/// may have several owners.
struct ParameterGroup {
  std::vector<RRef<at::Tensor>> parameters;
  Options options;
};

/// Optimizes parameters where they are: each owner keeps a part of the optimizer with its own
/// state, and takes the gradients from its part of a context.
///
///     sinew::optim::DistributedOptimizer optimizer(parameters, sinew::optim::AdamOptions());
///     sinew::autograd::Context context;
///     sinew::autograd::backward(context, {loss});
///     optimizer.step(context);
///
/// Parameters without a gradient in the context are left alone. Steps of several optimizers and
/// trainers never run at once on a parameter that they share; other parameters are not held up.
/// Forward passes are not held up either: they may read a parameter while it is stepped.
///
/// A handle: copies are the same optimizer. It can be passed in calls, so that several trainers
/// step one optimizer with one state; trainers that make one each have a state each. The owners
/// forget theirs when no handle is left. Thread-safe. What blocks throws RpcError; a call's time
/// limit is that of its worker unless `options` set one.
class DistributedOptimizer {
 public:
  /// An empty handle; using it throws kFailedPrecondition.
  DistributedOptimizer() = default;
  /// Makes the owners' parts. Blocks until all are made, or throws what the first one failed with:
  /// kInvalidArgument for options that make no sense, or parameters that are given twice, are no
  /// leaves or not of floating point. Without a worker it is current_worker().
  DistributedOptimizer(const Worker& worker, std::vector<RRef<at::Tensor>> parameters,
                       Options options, const CallOptions& call = {});
  DistributedOptimizer(std::vector<RRef<at::Tensor>> parameters, Options options,
                       const CallOptions& call = {})
      : DistributedOptimizer(current_worker(), std::move(parameters), std::move(options), call) {}
  /// With options of their own for some parameters. All groups are of one kind of optimizer.
  DistributedOptimizer(const Worker& worker, std::vector<ParameterGroup> groups,
                       const CallOptions& call = {});
  explicit DistributedOptimizer(std::vector<ParameterGroup> groups, const CallOptions& call = {})
      : DistributedOptimizer(current_worker(), std::move(groups), call) {}
  template <class Parameters, class Lbfgs,
            class = std::enable_if_t<std::is_same_v<Lbfgs, LbfgsOptions>>>
  DistributedOptimizer(const Worker&, const Parameters& parameters, const Lbfgs& options)
      : DistributedOptimizer(parameters, options) {}
  template <class Parameters, class Lbfgs,
            class = std::enable_if_t<std::is_same_v<Lbfgs, LbfgsOptions>>>
  DistributedOptimizer(const Parameters&, const Lbfgs&) {
    static_assert(
        !std::is_same_v<Lbfgs, LbfgsOptions>,
        "Sinew: LBFGS cannot be distributed: it evaluates the loss several times within a "
        "step and needs all gradients in one place; take another optimizer");
  }

  /// The same optimizer after workers that own parameters were lost and have returned, empty:
  ///
  ///     const auto net = worker.find<app::Net>("server/net", 5min);  // the next of that name
  ///     optimizer = optimizer.rebind(net.call<&app::Net::parameters>(), options);
  ///     const auto note = optimizer.load("run7").note;  // all owners return to it
  ///
  /// `groups` are all parameters, as when it was made. Where the owner lives they are the same
  /// ones, and its part stays as it is (its options too). Where it is another worker, a part is
  /// made anew, with these options, until load() says more.
  ///
  /// From now on owners refuse (kAborted) the steps of all other handles, those that are under way
  /// too, and the result refuses contexts that this worker had begun before: pass it to the other
  /// trainers. So nothing that was computed with the lost parameters gets into those that take
  /// their place.
  ///
  /// Blocks. Throws RpcError kInvalidArgument for other parameters at an owner that lives, kAborted
  /// when another trainer rebinds it at the same time, and as the constructor does. It may then be
  /// called again.
  DistributedOptimizer rebind(const std::vector<ParameterGroup>& groups,
                              const CallOptions& call = {}) const;
  DistributedOptimizer rebind(std::vector<RRef<at::Tensor>> parameters, Options options,
                              const CallOptions& call = {}) const;

  bool valid() const { return impl_ != nullptr; }
  /// The workers that have parameters, in the order of the first one of each.
  const std::vector<WorkerInfo>& owners() const;
  std::size_t group_count() const;

  /// Applies the gradients that the context has, once, at all owners. Blocks. Throws PartialStep
  /// when an owner did not, kNotFound for a context that has ended. Nothing is sent when an owner
  /// is known to be lost. An owner that has no gradient there is named in the log, once: perhaps
  /// its results were asked for before the context was made.
  StepReport step(const autograd::Context& context, const CallOptions& options = {}) const;
  StepReport step(const autograd::ContextId& context, const CallOptions& options = {}) const;
  /// The context must live until the future is complete.
  Future<StepReport> step_async(const autograd::ContextId& context,
                                const CallOptions& options = {}) const;
  /// Tries a step again at the owners that did not apply it, or that may have. When an owner is
  /// known to be lost, those that may have are only asked, and no owner applies it from then on.
  /// Its context must still live. Throws as step().
  StepReport repeat(const PartialStep& step, const CallOptions& options = {}) const;

  /// For the steps that start afterwards; of all groups, or of one. Repeating it does no harm when
  /// it throws because an owner could not be told. kInvalidArgument for a rate or a group that is
  /// none.
  void set_learning_rate(double lr, const CallOptions& options = {}) const;
  void set_learning_rate(std::size_t group, double lr, const CallOptions& options = {}) const;
  /// The options of a group that hold, the learning rate among them; and others for the steps that
  /// start afterwards. So a field is changed at run time:
  ///
  ///     auto adam = optimizer.options<sinew::optim::AdamOptions>(1);
  ///     adam.weight_decay = 0.1;
  ///     optimizer.set_options(1, adam);
  ///
  /// Repeating set_options() does no harm when it throws because an owner could not be told.
  /// kInvalidArgument for options of another optimizer, for such as make no sense, for what cannot
  /// be switched on once the optimizer is made (`amsgrad`; `centered` and the momentum of RMSprop),
  /// and for a group that is none. They block.
  template <class Fields>
  Fields options(std::size_t group, const CallOptions& call = {}) const {
    return options_at_owner(group, call).with(call).template call<&Options::as<Fields>>();
  }
  void set_options(std::size_t group, const Options& options, const CallOptions& call = {}) const;
  /// By group, those of the options that the optimizer was made with. See LrScheduler. Blocks.
  std::vector<double> initial_learning_rates(const CallOptions& options = {}) const;

  /// From now on checkpoints have these tensors in addition to the parameters: buffers of modules
  /// (RemoteModule::remote_buffers(), buffer_rrefs()), parameters that are not optimized. Each
  /// belongs to an owner of parameters. Those that are in already stay once. Blocks. Throws
  /// RpcError kInvalidArgument for an empty reference or a worker that has no parameters.
  void keep(const std::vector<RRef<at::Tensor>>& tensors, const CallOptions& options = {}) const;

  /// Has each owner save the parameters, their state, the learning rates and what keep() has named
  /// into a folder below the root that it serves (serve_checkpoints()), and read it again. When all
  /// have, they forget older checkpoints: see SaveOptions. When it throws, earlier checkpoints are
  /// still there. Blocks.
  ///
  /// What an owner saves is from between two steps. Make sure that no trainer steps meanwhile if
  /// the parts of all owners must be from between the same two steps. A folder is for one
  /// optimizer. Several of its trainers may save at once, also one that tries again after its time
  /// limit: each gets a number of its own.
  Checkpoint save(const std::string& folder, const SaveOptions& how = {},
                  const CallOptions& options = {}) const;
  /// The same; blocks only until all owners have a copy of what they save. Steps that begin then
  /// are not in it and need not wait for the files. The time limit counts twice: until then, and
  /// until the future is complete.
  Future<Checkpoint> save_async(const std::string& folder, const SaveOptions& how = {},
                                const CallOptions& options = {}) const;
  /// Restores the last checkpoint of which all owners have their part unharmed, or the one of this
  /// number, with the options (rate, decay, ...) that were saved. What cannot be switched on later
  /// (see set_options()) stays on where this optimizer has it. Owners know theirs by their names,
  /// and the order of their parameters.
  ///
  /// All of them read and check all before one changes anything: when it throws, no owner has
  /// changed anything, unless an owner was lost between the two. Blocks. Throws RpcError:
  /// - kNotFound: there is no checkpoint;
  /// - kDataLoss: all that there are have been damaged;
  /// - kFailedPrecondition: it is of another optimizer or of other tensors; the text names the
  ///   owner and the file.
  Checkpoint load(const std::string& folder, const CallOptions& options = {}) const;
  Checkpoint load(const std::string& folder, std::uint64_t number,
                  const CallOptions& options = {}) const;

  /// For codecs and tests.
  class Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }
  explicit DistributedOptimizer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  friend class GradScaler;

  Impl& checked() const;
  RRef<Options> options_at_owner(std::size_t group, const CallOptions& call) const;

  std::shared_ptr<Impl> impl_;
};

}  // namespace sinew::optim

namespace sinew {

template <>
struct Codec<optim::DistributedOptimizer> {
  static void encode(ValueWriter& writer, const optim::DistributedOptimizer& optimizer);
  static optim::DistributedOptimizer decode(const ValueReader& reader);
  static std::string signature() { return "optim.optimizer"; }
};

}  // namespace sinew
