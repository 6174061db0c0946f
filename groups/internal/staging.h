#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

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

enum class TensorUse { kRead, kWritten, kReadAndWritten };

/// Throws RpcError kInvalidArgument for a tensor that no group takes: undefined, sparse, quantized,
/// without memory, to be written where elements share memory, or to be read as bool with bytes that
/// are neither 0 nor 1. `what` names it, as tensor `at` of several if that is set.
void check_tensor(const at::Tensor& tensor, std::string_view what, TensorUse use,
                  std::optional<std::size_t> at = std::nullopt);

/// Throws RpcError kInvalidArgument, with the numbers of two, if some of the tensors share memory:
/// what one rank sends would be lost to what another one sends.
void check_apart(const std::vector<at::Tensor>& outputs, std::string_view what);

}  // namespace sinew::internal
