#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/autograd/context.h"
#include "sinew/groups/process_group.h"
#include "sinew/optim/options.h"
#include "sinew/parallel/join.h"

namespace sinew::parallel {

/// Parameters with options of their own.
struct ParameterGroup {
  std::vector<at::Tensor> parameters;
  optim::Options options;
};

/// An optimizer whose state (momentum, ...) is spread over the ranks of a group: each rank keeps
/// that of its part of the parameters, steps them, and sends them to the others. Results are those
/// of the plain optimizer, bit by bit, when all ranks have the same gradients, as after a backward
/// pass of a DistributedDataParallel. Stage 1 of Rajbhandari et al., "ZeRO: Memory Optimizations
/// Toward Training Trillion Parameter Models" (2020).
///
/// Parameters go, the largest first, each to the rank that has the fewest elements so far. All
/// ranks call the same functions in the same order; they block, and throw what the group's
/// operations throw. A step in which ranks have other options throws RpcError kInvalidArgument on
/// all of them, with the group and the values, and changes nothing; in join() those without inputs
/// take over the options of one that has. Not thread-safe.
class ZeroRedundancyOptimizer final : public Joinable {
 public:
  /// The same parameters in the same order on all ranks: throws RpcError kInvalidArgument on all of
  /// them, naming the first difference, when they are not; and for options that make no sense, or
  /// groups of different kinds of optimizers. They are dense leaves of floating point, each once.
  ZeroRedundancyOptimizer(ProcessGroup group, std::vector<ParameterGroup> parameters);
  ZeroRedundancyOptimizer(ProcessGroup group, std::vector<at::Tensor> parameters,
                          const optim::Options& options);
  ~ZeroRedundancyOptimizer() override;

  /// Steps the parameters that have a `.grad`.
  void step();
  /// Runs `closure`, which computes the loss and the gradients, with gradients enabled; then steps.
  /// Returns the loss.
  at::Tensor step(const std::function<at::Tensor()>& closure);
  /// Steps the parameters that have a gradient in a context of this worker.
  void step(const autograd::Context& context);
  /// Sets the gradients that there are to zero, in place.
  void zero_grad() const;

  /// Of all parameters, or of those of one group of the constructor. No communication, and alike on
  /// all ranks: the next step compares. Throws RpcError kOutOfRange, and kInvalidArgument for a
  /// rate that makes no sense.
  void set_learning_rate(double lr);
  void set_learning_rate(std::size_t group, double lr);

  /// The state of all ranks, at rank `to`; empty at the others. It says nothing of how many ranks
  /// there are. In LibTorch's format.
  std::string save(int to = 0) const;
  /// Each rank takes its part of a state that save() has returned, also with another number of
  /// ranks, and the options: see DistributedOptimizer::load(). No communication. Throws RpcError
  /// kInvalidArgument, and changes nothing, when it is of another optimizer or other parameters, or
  /// damaged.
  void load(const std::string& state);

  /// What this rank keeps in addition to the parameters.
  std::size_t state_bytes() const;
  /// The rank that steps a parameter, by its number in the order of the constructor.
  int owner_of(std::size_t parameter) const;

  // For join(): a rank without inputs goes on to step its part, with the gradients of one that has.
  const ProcessGroup& join_group() const override;
  void enter_join(JoinSession* session) override;
  void leave_join() override;
  void shadow(const JoinRound& round) override;
  void finish_join(int root) override;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sinew::parallel
