#pragma once

#include <torch/serialize/archive.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/optim/internal/torch_optimizer.h"
#include "sinew/optim/options.h"
#include "sinew/parallel/zero_redundancy_optimizer.h"

namespace sinew::parallel::internal {

/// One rank's part of an optimizer that is spread over ranks: which parameters it steps, with which
/// state, and what that looks like when it is saved. Knows nothing of how ranks talk to each other.
/// Throws as ZeroRedundancyOptimizer does. Not thread-safe.
class OptimizerShard {
 public:
  OptimizerShard(const std::vector<ParameterGroup>& groups, int rank, int ranks);

  /// Of each parameter, for texts: what must be the same on all ranks.
  std::vector<std::string> descriptions() const;
  std::vector<at::Tensor> parameters() const;
  std::vector<at::Tensor> parameters_of(int rank) const;
  int owner_of(std::size_t parameter) const;

  /// Steps those parameters of this rank for which there is a gradient (it may be undefined).
  void step(const std::function<at::Tensor(const at::Tensor&)>& gradient_of);

  std::size_t group_count() const { return options_.size(); }
  void set_learning_rate(std::size_t group, double lr);
  /// A line for each group: what must be the same on all ranks in a step.
  std::vector<std::string> option_lines() const;
  /// Takes the options of such a state as add_part() adds to.
  void take_options(const std::string& state);
  std::size_t state_bytes() const;

  /// The state of this rank's parameters.
  std::string save_part() const;
  /// A state to which the parts of all ranks are to be added.
  torch::serialize::OutputArchive begin_state() const;
  void add_part(const std::string& part, int rank, torch::serialize::OutputArchive& state) const;
  static std::string finish_state(torch::serialize::OutputArchive& state);
  /// Takes this rank's part of such a state, which may be of another number of ranks.
  void load(const std::string& state);

 private:
  using TorchOptimizer = sinew::internal::TorchOptimizer;
  using Optimizers = std::vector<std::unique_ptr<TorchOptimizer>>;

  struct Parameter {
    at::Tensor tensor;
    std::string description;
    std::size_t group = 0;
    int owner = 0;
    // The same memory with a `.grad` of its own, so that gradients of contexts can be stepped and
    // the program's are left alone. Only at the owner, as what follows.
    at::Tensor stepped;
    // One for each parameter: state can be saved and taken over by another number of ranks.
    std::unique_ptr<TorchOptimizer> optimizer;
  };

  void add_group(const ParameterGroup& group);
  void set_options(std::size_t group, const optim::Options& options);
  static std::unique_ptr<TorchOptimizer> make_optimizer(const Parameter& parameter,
                                                        const optim::Options& options);
  std::vector<optim::Options> read_options(torch::serialize::InputArchive& archive) const;
  Optimizers read_parts(torch::serialize::InputArchive& archive,
                        const std::vector<optim::Options>& options) const;

  std::vector<optim::Options> options_;
  std::vector<Parameter> parameters_;
};

}  // namespace sinew::parallel::internal
