#pragma once

#include <string>

#include "ATen/ATen.h"
#include "sinew/tests/wire/wire_test_support.h"

namespace sinew::testing {

inline const at::ScalarType kAllElementTypes[] = {
    at::kByte,        at::kChar,         at::kShort,        at::kInt,    at::kLong,
    at::kHalf,        at::kBFloat16,     at::kFloat,        at::kDouble, at::kBool,
    at::kComplexHalf, at::kComplexFloat, at::kComplexDouble};

/// 0, 1, 2, ... in this type and shape, without operators that some types lack. Nothing else
/// refers to its storage.
inline at::Tensor counting(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return at::arange(count, at::kLong)
      .remainder(type == at::kBool ? 2 : 128)
      .to(type)
      .view(sizes)
      .clone();
}

/// The elements' bytes in row-major order.
inline std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  return std::string(static_cast<const char*>(dense.data_ptr()), dense.nbytes());
}

inline void expect_same(const at::Tensor& a, const at::Tensor& b) {
  ASSERT_EQ(a.defined(), b.defined());
  if (!a.defined()) return;
  EXPECT_EQ(a.scalar_type(), b.scalar_type());
  EXPECT_EQ(a.sizes(), b.sizes());
  EXPECT_EQ(a.requires_grad(), b.requires_grad());
  EXPECT_TRUE(bytes_of(a.detach()) == bytes_of(b.detach()));
}

inline std::size_t payload_bytes(const Encoded& encoded) {
  std::size_t total = 0;
  for (const absl::Cord& payload : encoded.payloads) total += payload.size();
  return total;
}

/// Whether the only payload refers to the memory of the tensor.
inline bool is_aliased(const Encoded& encoded, const at::Tensor& tensor) {
  const auto flat = encoded.payloads.at(0).TryFlat();
  return flat.has_value() && flat->data() == static_cast<const char*>(tensor.data_ptr());
}

}  // namespace sinew::testing
