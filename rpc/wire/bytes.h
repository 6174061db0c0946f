#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace sinew {

/// A string of bytes that is not text: travels as `binary` whatever it holds. For bulk numeric data
/// prefer a tensor, which travels without copies.
struct Bytes {
  std::string data;

  Bytes() = default;
  explicit Bytes(std::string bytes) : data(std::move(bytes)) {}
  explicit Bytes(std::string_view bytes) : data(bytes) {}
  explicit Bytes(const char* bytes) : data(bytes) {}

  friend bool operator==(const Bytes& a, const Bytes& b) { return a.data == b.data; }
  friend bool operator!=(const Bytes& a, const Bytes& b) { return !(a == b); }
  friend bool operator<(const Bytes& a, const Bytes& b) { return a.data < b.data; }
};

}  // namespace sinew
