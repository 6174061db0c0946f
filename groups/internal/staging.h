#pragma once

#include <string_view>

#include "ATen/core/Tensor.h"

namespace sinew::internal {

/// A user's tensor as backends take it: contiguous, out of autograd's sight.
class Staged {
 public:
  /// Its memory is used itself where it is contiguous; otherwise a copy with the same values.
  explicit Staged(const at::Tensor& tensor);

  const at::Tensor& contiguous() const { return contiguous_; }
  /// Its memory, whatever the type.
  at::Tensor bytes() const;
  /// Gives the user's tensor the values that are in a copy.
  void write_back() const;

 private:
  at::Tensor tensor_;
  at::Tensor contiguous_;
};

enum class TensorUse { kRead, kWritten };

/// Throws RpcError kInvalidArgument for a tensor that no group takes: undefined, sparse, quantized,
/// without memory, or to be written where elements share memory. `what` names it.
void check_tensor(const at::Tensor& tensor, std::string_view what, TensorUse use);

}  // namespace sinew::internal
