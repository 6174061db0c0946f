#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sinew::internal {

/// One tensor of a version, as it is told.
struct NamedShape {
  std::string name;
  /// A c10::ScalarType: its numbers stay.
  std::int32_t type = 0;
  std::vector<std::int64_t> sizes;

  friend bool operator==(const NamedShape& a, const NamedShape& b) {
    return a.name == b.name && a.type == b.type && a.sizes == b.sizes;
  }
};

/// Where the tensors of a version are in its bytes: one after the other in the order of their
/// names, each row-major and at a multiple of kAlignment, with zeros between them.
class WeightsLayout {
 public:
  static constexpr std::size_t kAlignment = 64;

  /// Checks what others say. kInvalidArgument: no tensors, names that are not in order (so none
  /// comes twice), sizes or types that cannot be, more than `most_bytes`.
  static absl::StatusOr<WeightsLayout> make(std::vector<NamedShape> tensors,
                                            std::uint64_t most_bytes);

  struct Place {
    std::size_t offset = 0;
    std::size_t elements = 0;
    /// Of an element; of its parts for complex ones.
    std::size_t width = 0;
  };
  const std::vector<NamedShape>& tensors() const { return tensors_; }
  const std::vector<Place>& places() const { return places_; }
  /// At least 1.
  std::size_t bytes() const { return bytes_; }
  /// SHA-256 of these bytes in this layout, as hexadecimal digits.
  std::string digest(std::string_view bytes) const;

  friend bool operator==(const WeightsLayout& a, const WeightsLayout& b) {
    return a.tensors_ == b.tensors_;
  }

 private:
  std::vector<NamedShape> tensors_;
  std::vector<Place> places_;
  std::size_t bytes_ = 1;
};

/// What differs between two versions of one layout, both of `layout.bytes()`: for each element that
/// does, how many do not before it, and the difference of its bits as a number. Nothing when that
/// takes more than `most_bytes`.
std::optional<std::string> encode_changes(const WeightsLayout& layout, const char* from,
                                          const char* to, std::size_t most_bytes);
/// Makes `bytes` the later version. kInvalidArgument for what is no such difference; `bytes` are
/// then anything.
absl::Status apply_changes(const WeightsLayout& layout, std::string_view changes, char* bytes);

}  // namespace sinew::internal
