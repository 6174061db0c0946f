#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sinew/optim/distributed_optimizer.h"

namespace sinew::optim {

/// A worker that mirrors what an owner of a DistributedOptimizer's parameters has, these and the
/// state of their optimizer, so that it can take over when the owner is lost, without a return to a
/// checkpoint:
///
///     const auto spare = worker.peer("server1").remote<app::Net>(64);  // the same parameters
///     const sinew::optim::Standby standby(optimizer, "server0",
///                                         spare.call<&app::Net::parameters>(), options);
///     ...
///     optimizer = sinew::optim::take_over(optimizer, {standby});
///
/// A handle: copies are the same standby, also when they are passed in calls, so any worker that
/// has one can have it take over. The owner keeps it too. Thread-safe.
class Standby {
 public:
  /// An empty handle; using it throws RpcError kFailedPrecondition.
  Standby() = default;
  /// `groups` are the owner's parameters as the standby has them, all at one worker, of the same
  /// types and sizes and in the same order; their values become the owner's. Steps go on meanwhile.
  /// Blocks until the standby has caught up. From then on a step is not acknowledged before the
  /// standby has it, unless that is lost or fails, which costs the owner only that wait. One for
  /// each owner: another one takes its place, from when it begins to catch up.
  ///
  /// Throws RpcError. In the first two cases the owner keeps the standby that it has, which can
  /// take over:
  /// - kInvalidArgument: a worker that is no owner, or is one itself, or parameters that do not
  ///   fit;
  /// - kFailedPrecondition: a step of the owner failed half-way;
  /// - kAborted: it missed a change while it was catching up, so it is no standby: make another
  ///   one.
  Standby(const DistributedOptimizer& optimizer, std::string_view owner,
          const std::vector<ParameterGroup>& groups, const CallOptions& call = {});
  Standby(const DistributedOptimizer& optimizer, std::string_view owner,
          std::vector<RRef<at::Tensor>> parameters, Options options, const CallOptions& call = {});

  bool valid() const { return impl_ != nullptr; }
  /// The name of the owner.
  const std::string& owner() const;
  /// The worker that stands by.
  WorkerInfo worker() const;
  /// False once that is lost.
  bool alive() const;

  /// For take_over() and codecs.
  struct Impl;
  const Impl& impl() const;
  explicit Standby(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

/// The same optimizer, whose parts at these owners are now those of their standbys, with all steps
/// that were acknowledged. Owners that are replaced may live: steps of theirs that are under way
/// are acknowledged no more. Otherwise as after DistributedOptimizer::rebind(): steps of other
/// handles are refused, and contexts of before; what had not been acknowledged is made again, see
/// repeat().
///
/// What DistributedOptimizer::keep() had named is not mirrored: name the standby's, which are as
/// its program has left them. Until then checkpoints have only the parameters of its tensors.
///
/// Blocks. Throws RpcError; then rebind() and load() are left, and it may be called again:
/// - kUnavailable: an owner is lost that has no standby here;
/// - kFailedPrecondition: a standby has not caught up, or was given up by its owner;
/// - kDataLoss: a standby lacks a step that this worker knows to be acknowledged.
DistributedOptimizer take_over(const DistributedOptimizer& optimizer,
                               const std::vector<Standby>& standbys, const CallOptions& call = {});

/// The same step, also one that was begun with the optimizer as it was before take_over(), with the
/// gradients of another context, for which the forward and backward pass have been made again.
/// Owners that have applied it, and standbys that have taken over and have it, do not apply it once
/// more. Blocks. Throws as DistributedOptimizer::step().
StepReport repeat(const DistributedOptimizer& optimizer, const PartialStep& step,
                  const autograd::Context& context, const CallOptions& options = {});

}  // namespace sinew::optim

namespace sinew {

template <>
struct Codec<optim::Standby> {
  static void encode(ValueWriter& writer, const optim::Standby& standby);
  static optim::Standby decode(const ValueReader& reader);
  static std::string signature() { return "optim.standby"; }
};

}  // namespace sinew
