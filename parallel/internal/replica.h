#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/groups/process_group.h"
#include "sinew/parallel/ddp_options.h"
#include "sinew/parallel/join.h"

namespace torch::nn {
class Module;
}

namespace sinew::parallel::internal {

/// What a DistributedDataParallel does around the forward() of its module. For one thread at a
/// time.
class Replica {
 public:
  Replica(std::shared_ptr<torch::nn::Module> module, ProcessGroup group, DdpOptions options);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  const ProcessGroup& group() const;
  /// Throws RpcError kFailedPrecondition when the module is no longer what it was, and when another
  /// thread is between this and leave_forward().
  void before_forward();
  void leave_forward();
  /// `outputs`: the tensors of what forward() has returned; unset: not known.
  void after_forward(const std::optional<std::vector<at::Tensor>>& outputs);

  /// Between these, passes leave gradients as they are. They nest.
  void suspend_sync();
  void resume_sync();
  void sync_buffers();
  void zero_grad();

  /// A step that all ranks do or leave together. Throws RpcError kFailedPrecondition within another
  /// one and in join(). Blocks while others have not heard of the end of the last one.
  void begin_step();
  void end_step();
  /// Before end_step(): the step has failed here. Does not throw.
  void leave_step(const std::exception_ptr& error);

  // What Joinable has.
  void enter_join(JoinSession* session);
  void leave_join();
  void shadow(const JoinRound& round);
  void finish_join(int root);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

/// The time in which a thread is in forward().
class InForward {
 public:
  explicit InForward(Replica& replica) : replica_(replica) { replica_.before_forward(); }
  ~InForward() { replica_.leave_forward(); }
  InForward(const InForward&) = delete;
  InForward& operator=(const InForward&) = delete;

 private:
  Replica& replica_;
};

/// The time in which a step is done.
class InStep {
 public:
  explicit InStep(Replica& replica) : replica_(replica) { replica_.begin_step(); }
  ~InStep() { replica_.end_step(); }
  InStep(const InStep&) = delete;
  InStep& operator=(const InStep&) = delete;

 private:
  Replica& replica_;
};

}  // namespace sinew::parallel::internal
