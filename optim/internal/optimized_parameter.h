#pragma once

#include <cstddef>
#include <string>

#include "ATen/core/Tensor.h"

namespace sinew::internal {

/// "Float [4, 3]"
std::string type_and_sizes(const at::Tensor& tensor);

/// What to do about a parameter that is there twice.
inline constexpr const char* kTiedOnce =
    "a weight that modules share is given once, under one of its names (DistributedDataParallel "
    "and parameter_rrefs() see to it)";

/// One parameter of an optimizer, at its owner.
struct OptimizedParameter {
  at::Tensor tensor;
  /// The same elements as another tensor, which is what LibTorch's optimizer steps: its grad can be
  /// set without touching the user's, and the tensor's version is left as it is, as LibTorch's
  /// optimizers leave it. (A step between another trainer's forward and backward pass is therefore
  /// no error.)
  at::Tensor shadow;
  std::size_t group = 0;
  std::string label;

  /// Throws RpcError kInvalidArgument for what cannot be optimized.
  void check() const;
  /// A program may have given the tensor other memory: loaded a file into its module, say.
  void follow();
  /// "0 Float [4, 3]"
  std::string describe() const;
};

}  // namespace sinew::internal
