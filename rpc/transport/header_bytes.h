#pragma once

#include <cstddef>
#include <ostream>
#include <type_traits>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"

namespace sinew::internal {

/// The bytes of a frame's header. As few as most headers have take no memory of their own: one
/// thread makes them and another one lets go of them, which costs the allocator the most.
class HeaderBytes {
 public:
  HeaderBytes() = default;
  /// From any text.
  template <class Text,
            class = std::enable_if_t<std::is_convertible_v<const Text&, absl::string_view> &&
                                     !std::is_same_v<Text, HeaderBytes>>>
  HeaderBytes(const Text& text) {
    const absl::string_view bytes = text;
    bytes_.assign(bytes.begin(), bytes.end());
  }
  /// So many zeros.
  static HeaderBytes of_size(std::size_t size) {
    HeaderBytes made;
    made.bytes_.resize(size);
    return made;
  }
  operator absl::string_view() const { return {bytes_.data(), bytes_.size()}; }
  char* data() { return bytes_.data(); }
  const char* data() const { return bytes_.data(); }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  friend bool operator==(const HeaderBytes& a, const HeaderBytes& b) {
    return a.bytes_ == b.bytes_;
  }
  friend std::ostream& operator<<(std::ostream& out, const HeaderBytes& bytes) {
    return out << absl::string_view(bytes);
  }

 private:
  absl::InlinedVector<char, 48> bytes_;
};

}  // namespace sinew::internal
