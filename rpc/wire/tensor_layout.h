#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace sinew::internal {

// Arithmetic on shapes, with no tensors: sizes are numbers of elements along each dimension.

using Sizes = absl::Span<const std::int64_t>;

/// The product of all sizes times `item_bytes`. Empty when a size is negative, or the product does
/// not fit 63 bits even with sizes of 0 taken as 1 (LibTorch multiplies those into strides).
std::optional<std::int64_t> checked_size_bytes(Sizes sizes, std::int64_t item_bytes);

/// How the elements of a strided tensor lie in its memory.
enum class Layout {
  kRowMajor,
  /// Without gaps or overlap, in the order of another permutation of the dimensions: transposed,
  /// channels-last.
  kPermuted,
  /// Gaps, expanded dimensions, overlap.
  kScattered,
};

struct DimensionOrder {
  Layout layout = Layout::kRowMajor;
  /// With kPermuted: the dimensions from the slowest to the fastest in memory.
  std::vector<std::int32_t> order;
};

DimensionOrder dimension_order(Sizes sizes, Sizes strides);

/// Whether `order` names each of `dims` dimensions once.
bool is_permutation(absl::Span<const std::int32_t> order, std::size_t dims);

/// Strides of a dense tensor whose dimensions lie in memory in this order, or row-major if it is
/// empty. The sizes must have passed checked_size_bytes, the order is_permutation.
std::vector<std::int64_t> dense_strides(Sizes sizes, absl::Span<const std::int32_t> order);

}  // namespace sinew::internal
