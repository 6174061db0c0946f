#pragma once

#include <vector>

#include "ATen/core/Tensor.h"

namespace sinew::internal {

/// Tensors of one type as one piece of memory, in their order, which is what MPI's collectives
/// take: their own if they lie one after the other, as the chunks of a tensor do, or a copy.
class MpiPieces {
 public:
  /// The tensors are contiguous, and there is at least one.
  explicit MpiPieces(std::vector<at::Tensor> tensors);

  /// One dimension; shares the memory that MPI is to use.
  const at::Tensor& memory() const { return memory_; }
  bool is_copy() const { return is_copy_; }

  /// Nothing to do if it is no copy.
  void copy_in() const;
  void copy_out() const;

 private:
  std::vector<at::Tensor> tensors_;
  at::Tensor memory_;
  bool is_copy_ = false;
};

}  // namespace sinew::internal
