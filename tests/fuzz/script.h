#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sinew::fuzz {

/// A part of a script, for machines that keep a state: a byte that says who speaks or what happens,
/// a length of two bytes, and that many bytes.
struct Step {
  std::uint8_t what = 0;
  std::string_view bytes;
};

inline bool next_step(std::string_view& script, Step& step) {
  constexpr std::size_t kHeadBytes = 3;
  if (script.size() < kHeadBytes) return false;
  step.what = static_cast<std::uint8_t>(script[0]);
  const std::size_t length =
      static_cast<std::uint8_t>(script[1]) + 256U * static_cast<std::uint8_t>(script[2]);
  script.remove_prefix(kHeadBytes);
  step.bytes = script.substr(0, length);
  script.remove_prefix(step.bytes.size());
  return true;
}

inline void add_step(std::string& script, std::uint8_t what, const std::string& bytes) {
  script += static_cast<char>(what);
  script += static_cast<char>(bytes.size() % 256);
  script += static_cast<char>(bytes.size() / 256);
  script += bytes;
}

}  // namespace sinew::fuzz
