#include "sinew/rpc/wire/tensor_layout.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace sinew::internal {

std::optional<std::int64_t> checked_size_bytes(Sizes sizes, std::int64_t item_bytes) {
  std::int64_t bytes = item_bytes;
  bool empty = false;
  for (const std::int64_t size : sizes) {
    if (size < 0) return std::nullopt;
    if (size == 0) empty = true;
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes)) return std::nullopt;
  }
  return empty ? 0 : bytes;
}

DimensionOrder dimension_order(Sizes sizes, Sizes strides) {
  const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  if (empty) return {};
  std::vector<std::int32_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  // Strides of dimensions with one element mean nothing; the stable sort leaves equal ones
  // row-major.
  const auto significant = [&](std::int32_t d) { return sizes[d] != 1; };
  std::vector<std::int32_t> by_stride;
  std::copy_if(order.begin(), order.end(), std::back_inserter(by_stride), significant);
  std::stable_sort(by_stride.begin(), by_stride.end(),
                   [&](std::int32_t a, std::int32_t b) { return strides[a] > strides[b]; });
  std::int64_t expected = 1;
  for (auto d = by_stride.rbegin(); d != by_stride.rend(); ++d) {
    if (strides[*d] != expected) return {Layout::kScattered, {}};
    expected *= sizes[*d];
  }
  if (std::is_sorted(by_stride.begin(), by_stride.end())) return {};
  // Dimensions of one element go to the front, where they cost nothing.
  std::stable_partition(order.begin(), order.end(),
                        [&](std::int32_t d) { return !significant(d); });
  std::copy(by_stride.begin(), by_stride.end(),
            order.end() - static_cast<std::ptrdiff_t>(by_stride.size()));
  return {Layout::kPermuted, std::move(order)};
}

bool is_permutation(absl::Span<const std::int32_t> order, std::size_t dims) {
  if (order.size() != dims) return false;
  std::vector<bool> seen(dims);
  for (const std::int32_t d : order) {
    if (d < 0 || static_cast<std::size_t>(d) >= dims || seen[static_cast<std::size_t>(d)]) {
      return false;
    }
    seen[static_cast<std::size_t>(d)] = true;
  }
  return true;
}

std::vector<std::int64_t> dense_strides(Sizes sizes, absl::Span<const std::int32_t> order) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    const std::size_t d = order.empty() ? i : static_cast<std::size_t>(order[i]);
    strides[d] = stride;
    stride *= std::max<std::int64_t>(sizes[d], 1);
  }
  return strides;
}

}  // namespace sinew::internal
