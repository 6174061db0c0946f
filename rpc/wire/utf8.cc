#include "sinew/rpc/wire/utf8.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sinew::internal {
namespace {

constexpr std::uint64_t kHighBits = 0x8080808080808080;

// How many bytes the sequence at the start of `text` has, 0 if it is not valid. Table 3-7 of the
// Unicode standard: only the second byte has ranges of its own.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  std::size_t length = 0;
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  if (text.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    std::uint64_t eight = 0;
    if (text.size() >= sizeof(eight)) {
      std::memcpy(&eight, text.data(), sizeof(eight));
      if ((eight & kHighBits) == 0) {
        text.remove_prefix(sizeof(eight));
        continue;
      }
    }
    const std::size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace sinew::internal
