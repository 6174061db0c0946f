#include "sinew/rpc/wire/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace sinew::internal {
namespace {

std::string utf8_of(std::uint32_t code) {
  const auto tail = [code](int shift) {
    return static_cast<char>(0x80 | ((code >> shift) & 0x3F));
  };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | (code >> 6)), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | (code >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | (code >> 18)), tail(12), tail(6), tail(0)};
}

TEST(Utf8Test, TakesEveryScalarValueAndNoSurrogate) {
  for (std::uint32_t code = 0; code <= 0x110FFF; ++code) {
    const bool valid = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    ASSERT_EQ(is_utf8(utf8_of(code)), valid) << code;
  }
}

TEST(Utf8Test, RefusesBrokenSequences) {
  for (const char* text :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2\x41", "\xE0\x9F\xBF", "\xE1\x80",
        "\xE1\x80\x41", "\xF0\x8F\xBF\xBF", "\xF1\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xFF", "12345678\xFF", "1234567\xC3", "12345678901\xE2\x82"}) {
    EXPECT_FALSE(is_utf8(text)) << text;
  }
}

TEST(Utf8Test, FindsTheFaultAtEveryPlace) {
  for (std::size_t place = 0; place < 40; ++place) {
    std::string text(40, 'a');
    EXPECT_TRUE(is_utf8(text));
    text[place] = '\xFF';
    EXPECT_FALSE(is_utf8(text)) << place;
  }
}

}  // namespace
}  // namespace sinew::internal
