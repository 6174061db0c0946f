#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/optim/options.h"

namespace torch::optim {
class Optimizer;
}
namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace sinew::internal {

/// One of LibTorch's optimizers, of ours or of a user's, over parameters that are given their
/// gradients. Not thread-safe.
class TorchOptimizer {
 public:
  struct Group {
    std::vector<at::Tensor> parameters;
    optim::Options options;
  };
  /// `groups`, at least one, are of one optimizer. Throws RpcError kInvalidArgument.
  explicit TorchOptimizer(const std::vector<Group>& groups);
  ~TorchOptimizer();
  TorchOptimizer(const TorchOptimizer&) = delete;
  TorchOptimizer& operator=(const TorchOptimizer&) = delete;

  /// Why a step of a parameter with these options cannot take this gradient; empty: it can.
  static std::string refusal(const optim::Options& options, const at::Tensor& parameter,
                             const at::Tensor& gradient);
  /// Changes the parameters whose grad() is set.
  void step();
  /// `options` are of this optimizer.
  void set_options(std::size_t group, const optim::Options& options);
  /// Of the tensors that it keeps for its parameters (momentum, ...), without the parameters;
  /// of an optimizer of a user's that is no PerParameterOptimizer, what it would save.
  std::size_t state_bytes() const;

  /// Throws RpcError kUnimplemented when the optimizer does not know how.
  void save(torch::serialize::OutputArchive& archive) const;
  /// The same. Throws c10::Error when the archive does not fit, RpcError kFailedPrecondition when
  /// what it has was kept with other options than the optimizer goes on with; this is of no use
  /// then.
  void load(torch::serialize::InputArchive& archive);

 private:
  void check_has_checkpoints() const;

  const std::unique_ptr<torch::optim::Optimizer> optimizer_;
  // By group.
  std::vector<optim::Options> options_;
};

}  // namespace sinew::internal
