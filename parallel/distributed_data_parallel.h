#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "ATen/core/Tensor.h"
#include "sinew/groups/process_group.h"
#include "sinew/parallel/ddp_options.h"
#include "sinew/parallel/internal/output_tensors.h"
#include "sinew/parallel/internal/replica.h"
#include "sinew/parallel/join.h"

namespace sinew::parallel {

/// While it lives, forward() is none of a step in which gradients are reduced: backward passes add
/// to the gradients of this rank alone. The first pass after a forward() outside of it reduces the
/// sums. For gradient accumulation. Ends before its DistributedDataParallel does.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(internal::Replica& replica) : replica_(replica) { replica_.suspend_sync(); }
  ~NoSync() { replica_.resume_sync(); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  internal::Replica& replica_;
};

/// A module of which each rank of a group has a copy, that trains as one: each rank does a part of
/// a batch, and a backward pass leaves on all ranks the mean of their gradients, which is the
/// gradient of the whole batch when the parts have one size and the loss is a mean.
///
///     auto net = std::make_shared<app::Net>();
///     sinew::parallel::DistributedDataParallel ddp(net, group);
///     torch::optim::SGD optimizer(net->parameters(), 0.1);
///     optimizer.zero_grad();
///     loss(ddp.forward(input), target).backward();  // reduces net's .grad
///     optimizer.step();
///
/// In an autograd context (sinew/autograd/context.h) it reduces the gradients that the context gets
/// instead, in the next pass of the context after forward(), and `.grad` is not touched: backward
/// passes that also go to other workers keep the gradients of the module on all ranks or on none
/// (docs/parallel.md).
///
/// All ranks call the same functions in the same order, from the thread that makes it (see
/// DdpOptions::callers). What it calls throws RpcError:
/// - kInvalidArgument: the modules or options of the ranks differ (the text names the first
///   difference, on all ranks), or an option makes no sense;
/// - kFailedPrecondition, from backward() on all ranks: the pass leaves out parameters, or ranks
///   are in different passes or have other parameters; from forward(): the module is no longer what
///   it was (docs/parallel.md; the texts name what and where);
/// - kAborted, from backward() on the other ranks: a pass fails on one;
/// - what the group's operations throw, from backward() too, and as LibTorch's engine passes it on.
template <class Module>
class DistributedDataParallel final : public Joinable {
 public:
  /// Copies parameters and buffers of rank 0 to all ranks. `module` is used as it is: while this
  /// lives, none of its parameters is added or replaced, nor its data (torch::load() does), nor
  /// changes its requires_grad(). Blocks.
  DistributedDataParallel(std::shared_ptr<Module> module, ProcessGroup group,
                          const DdpOptions& options = {})
      : module_(std::move(module)), replica_(module_, std::move(group), options) {}
  /// Of a module holder of LibTorch (torch::nn::Linear, ...).
  template <class Holder, class = typename Holder::ContainedType>
  DistributedDataParallel(const Holder& holder, ProcessGroup group, const DdpOptions& options = {})
      : DistributedDataParallel(holder.ptr(), std::move(group), options) {}

  /// The module's. With gradients enabled, the next backward pass through the result reduces.
  template <class... Args>
  auto forward(Args&&... args) {
    const internal::InForward here(replica_);
    auto result = module_->forward(std::forward<Args>(args)...);
    replica_.after_forward(internal::output_tensors(result));
    return result;
  }
  template <class... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  /// Runs `step`, and returns what it returns: calls of forward() and one backward pass that
  /// reduces, with what belongs to them, such as calls of a server. All ranks call it. An autograd
  /// context of the step is made before it. Not in join(). Takes no time of its own when nothing
  /// fails.
  ///
  /// What `step` throws on some ranks, such as the loss of the server, it throws there. In the
  /// others the pass ends at once with kAborted, which says on which ranks and why. No rank keeps
  /// gradients, and all may do the step again (docs/parallel.md).
  template <class Step>
  decltype(auto) step_together(Step&& step) {
    const internal::InStep here(replica_);
    try {
      return std::forward<Step>(step)();
    } catch (...) {
      replica_.leave_step(std::current_exception());
      throw;
    }
  }

  /// For its parameters(), train(), eval(), and for a forward() that no other rank does.
  const std::shared_ptr<Module>& module() const { return module_; }
  const ProcessGroup& group() const { return replica_.group(); }

  NoSync no_sync() { return NoSync(replica_); }
  /// Copies the buffers of rank 0 to all ranks, before an evaluation say. Blocks.
  void sync_buffers() { replica_.sync_buffers(); }
  /// Sets the gradients that there are to zero, in place.
  void zero_grad() { replica_.zero_grad(); }

  // For join().
  const ProcessGroup& join_group() const override { return replica_.group(); }
  void enter_join(JoinSession* session) override { replica_.enter_join(session); }
  void leave_join() override { replica_.leave_join(); }
  void shadow(const JoinRound& round) override { replica_.shadow(round); }
  void finish_join(int root) override { replica_.finish_join(root); }

 private:
  const std::shared_ptr<Module> module_;
  internal::Replica replica_;
};

template <class Module>
DistributedDataParallel(std::shared_ptr<Module>, ProcessGroup) -> DistributedDataParallel<Module>;
template <class Module>
DistributedDataParallel(std::shared_ptr<Module>, ProcessGroup, const DdpOptions&)
    -> DistributedDataParallel<Module>;
template <class Holder, class Module = typename Holder::ContainedType>
DistributedDataParallel(const Holder&, ProcessGroup) -> DistributedDataParallel<Module>;
template <class Holder, class Module = typename Holder::ContainedType>
DistributedDataParallel(const Holder&, ProcessGroup, const DdpOptions&)
    -> DistributedDataParallel<Module>;

}  // namespace sinew::parallel
