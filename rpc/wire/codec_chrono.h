#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "sinew/rpc/wire/codec_basic.h"

namespace sinew {
namespace internal {

std::string duration_signature(std::string_view count, std::intmax_t numerator,
                               std::intmax_t denominator);

template <class Rep>
inline constexpr bool is_wire_count_v =
    is_wire_integer_v<Rep> || std::is_same_v<Rep, float> || std::is_same_v<Rep, double>;

}  // namespace internal

/// Travels as the number of its own units, so that nothing is rounded and nothing overflows.
/// Receivers check the range of theirs. The unit is part of the signature: a method that counts in
/// milliseconds refuses a caller that was built with seconds.
template <class Rep, class Period>
struct Codec<std::chrono::duration<Rep, Period>, std::enable_if_t<internal::is_wire_count_v<Rep>>> {
  using Duration = std::chrono::duration<Rep, Period>;
  using Unit = typename Period::type;

  static void encode(ValueWriter& writer, const Duration& value) {
    Codec<Rep>::encode(writer, value.count());
  }
  static Duration decode(const ValueReader& reader) { return Duration(Codec<Rep>::decode(reader)); }
  static std::string signature() {
    return internal::duration_signature(Codec<Rep>::signature(), Unit::num, Unit::den);
  }
};

}  // namespace sinew
