#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "sinew/rpc/wire/codec_basic.h"

namespace sinew {
namespace internal {

template <class T>
inline constexpr bool is_byte_v = std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::byte>;
template <class T>
inline constexpr bool is_item_v = !is_byte_v<T> && is_wire_type_v<T>;

std::string list_signature(std::string_view item);
std::string tuple_signature(std::initializer_list<std::string> parts);
std::string optional_signature(std::string_view value);
[[noreturn]] void fail_binary_size(const ValueReader& reader, std::size_t expected);

// A sender can claim few bytes for an item that takes much memory here, so memory beyond this is
// taken only as items prove valid.
inline constexpr std::size_t kMaxReservedBytes = std::size_t{1} << 20;
template <class T>
std::size_t reservation(std::size_t size) {
  return std::min(size, kMaxReservedBytes / sizeof(T) + 1);
}

// Items that have a packed form in the message.
template <class T>
inline constexpr bool is_packed_integer_v = is_wire_integer_v<T>;
template <class T>
inline constexpr bool is_packed_real_v = std::is_same_v<T, float> || std::is_same_v<T, double>;

// Naturals above 2^63-1 have no packed form.
template <class T>
bool all_pack(const T* items, std::size_t size) {
  if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(std::uint64_t)) {
    constexpr T kMax = std::numeric_limits<std::int64_t>::max();
    return std::all_of(items, items + size, [](T item) { return item <= kMax; });
  } else {
    return true;
  }
}

template <class T>
void encode_items(ValueWriter& writer, const T* items, std::size_t size) {
  if constexpr (is_packed_real_v<T>) {
    const absl::Span<double> packed = writer.reals(size);
    for (std::size_t i = 0; i < size; ++i) packed[i] = items[i];
    return;
  } else if constexpr (is_packed_integer_v<T>) {
    if (all_pack(items, size)) {
      const absl::Span<std::int64_t> packed = writer.integers(size);
      for (std::size_t i = 0; i < size; ++i) packed[i] = static_cast<std::int64_t>(items[i]);
      return;
    }
  }
  if constexpr (!is_packed_real_v<T>) {
    ListWriter list = writer.list(size);
    for (std::size_t i = 0; i < size; ++i) {
      ValueWriter item = list.next();
      Codec<T>::encode(item, items[i]);
    }
  }
}

// One item, past the general path for packed integers and reals, which a long list would feel.
template <class T>
class ItemSource {
 public:
  explicit ItemSource(const ListReader& list) : list_(list) {
    if constexpr (is_packed_real_v<T>) reals_ = list.packed_reals();
    if constexpr (is_packed_integer_v<T>) integers_ = list.packed_integers();
  }
  T operator[](std::size_t i) const {
    if constexpr (is_packed_real_v<T>) {
      if (i < reals_.size() && fits(reals_[i])) return static_cast<T>(reals_[i]);
    } else if constexpr (is_packed_integer_v<T>) {
      if (i < integers_.size() && fits(integers_[i])) return static_cast<T>(integers_[i]);
    }
    return Codec<T>::decode(list_.item(i));
  }

 private:
  // What does not fit is left to the codec, which has the words for it.
  static bool fits(double value) {
    return !(std::fabs(value) > std::numeric_limits<T>::max()) || std::isinf(value);
  }
  static bool fits(std::int64_t value) {
    if constexpr (std::is_unsigned_v<T>) {
      return value >= 0 && static_cast<std::uint64_t>(value) <= std::numeric_limits<T>::max();
    } else {
      return value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
    }
  }

  const ListReader& list_;
  absl::Span<const double> reals_;
  absl::Span<const std::int64_t> integers_;
};

template <class Array>
struct ByteVectorCodec {
  static void encode(ValueWriter& writer, const Array& value) {
    writer.binary({reinterpret_cast<const char*>(value.data()), value.size()});
  }
  static Array decode(const ValueReader& reader) {
    const std::string_view bytes = reader.binary();
    const auto* begin = reinterpret_cast<const typename Array::value_type*>(bytes.data());
    return Array(begin, begin + bytes.size());
  }
  static std::string signature() { return "binary"; }
};

// Null says "absent", so a type whose own values may be null would come back as another value.
template <class T>
inline constexpr bool may_be_null_v = std::is_same_v<T, std::monostate>;
template <class T>
inline constexpr bool may_be_null_v<std::optional<T>> = true;

}  // namespace internal

template <class T>
struct Codec<std::vector<T>, std::enable_if_t<internal::is_item_v<T>>> {
  static void encode(ValueWriter& writer, const std::vector<T>& value) {
    internal::encode_items(writer, value.data(), value.size());
  }
  static std::vector<T> decode(const ValueReader& reader) {
    const ListReader list = reader.list();
    const internal::ItemSource<T> items(list);
    std::vector<T> result;
    result.reserve(internal::reservation<T>(list.size()));
    for (std::size_t i = 0; i < list.size(); ++i) result.push_back(items[i]);
    return result;
  }
  static std::string signature() { return internal::list_signature(Codec<T>::signature()); }
};

template <>
struct Codec<std::vector<bool>> {
  static void encode(ValueWriter& writer, const std::vector<bool>& value);
  static std::vector<bool> decode(const ValueReader& reader);
  static std::string signature();
};

template <>
struct Codec<std::vector<std::uint8_t>> : internal::ByteVectorCodec<std::vector<std::uint8_t>> {};
template <>
struct Codec<std::vector<std::byte>> : internal::ByteVectorCodec<std::vector<std::byte>> {};

/// A list; the receiver checks its length.
template <class T, std::size_t N>
struct Codec<std::array<T, N>, std::enable_if_t<internal::is_item_v<T>>> {
  static void encode(ValueWriter& writer, const std::array<T, N>& value) {
    internal::encode_items(writer, value.data(), N);
  }
  static std::array<T, N> decode(const ValueReader& reader) {
    const ListReader list = reader.list(N);
    const internal::ItemSource<T> items(list);
    std::array<T, N> result{};
    for (std::size_t i = 0; i < N; ++i) result[i] = items[i];
    return result;
  }
  static std::string signature() { return internal::list_signature(Codec<T>::signature()); }
};

/// Binary, as the vectors of bytes are; the receiver checks its length.
template <class T, std::size_t N>
struct Codec<std::array<T, N>, std::enable_if_t<internal::is_byte_v<T>>> {
  static void encode(ValueWriter& writer, const std::array<T, N>& value) {
    writer.binary({reinterpret_cast<const char*>(value.data()), N});
  }
  static std::array<T, N> decode(const ValueReader& reader) {
    const std::string_view bytes = reader.binary();
    if (bytes.size() != N) internal::fail_binary_size(reader, N);
    std::array<T, N> result{};
    std::transform(bytes.begin(), bytes.end(), result.begin(),
                   [](char byte) { return static_cast<T>(byte); });
    return result;
  }
  static std::string signature() { return "binary"; }
};

template <class... Ts>
struct Codec<std::tuple<Ts...>, std::enable_if_t<are_wire_types_v<Ts...>>> {
  using Tuple = std::tuple<Ts...>;
  static void encode(ValueWriter& writer, const Tuple& value) {
    encode_parts(writer.list(sizeof...(Ts)), value, std::index_sequence_for<Ts...>());
  }
  static Tuple decode(const ValueReader& reader) {
    return decode_parts(reader.list(sizeof...(Ts)), std::index_sequence_for<Ts...>());
  }
  static std::string signature() { return internal::tuple_signature({Codec<Ts>::signature()...}); }

 private:
  template <class T>
  static void encode_part(ListWriter& list, const T& value) {
    ValueWriter part = list.next();
    Codec<T>::encode(part, value);
  }
  template <std::size_t... Is>
  static void encode_parts([[maybe_unused]] ListWriter list, [[maybe_unused]] const Tuple& value,
                           std::index_sequence<Is...>) {
    (encode_part(list, std::get<Is>(value)), ...);
  }
  // Braces keep the parts in order.
  template <std::size_t... Is>
  static Tuple decode_parts([[maybe_unused]] const ListReader& list, std::index_sequence<Is...>) {
    return Tuple{Codec<Ts>::decode(list.item(Is))...};
  }
};

template <class A, class B>
struct Codec<std::pair<A, B>, std::enable_if_t<are_wire_types_v<A, B>>> {
  static void encode(ValueWriter& writer, const std::pair<A, B>& value) {
    ListWriter list = writer.list(2);
    {
      ValueWriter first = list.next();
      Codec<A>::encode(first, value.first);
    }
    ValueWriter second = list.next();
    Codec<B>::encode(second, value.second);
  }
  static std::pair<A, B> decode(const ValueReader& reader) {
    const ListReader list = reader.list(2);
    return std::pair<A, B>{Codec<A>::decode(list.item(0)), Codec<B>::decode(list.item(1))};
  }
  static std::string signature() {
    return internal::tuple_signature({Codec<A>::signature(), Codec<B>::signature()});
  }
};

/// The value or null. An optional of what can itself be null (another optional, std::monostate) is
/// no wire type.
template <class T>
struct Codec<std::optional<T>, std::enable_if_t<is_wire_type_v<T> && !internal::may_be_null_v<T>>> {
  static void encode(ValueWriter& writer, const std::optional<T>& value) {
    if (!value.has_value()) return writer.null();
    Codec<T>::encode(writer, *value);
  }
  static std::optional<T> decode(const ValueReader& reader) {
    if (reader.is_null()) return std::nullopt;
    return Codec<T>::decode(reader);
  }
  static std::string signature() { return internal::optional_signature(Codec<T>::signature()); }
};

}  // namespace sinew
