#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sinew/rpc/wire/codec.h"

namespace at {
class Tensor;
}

namespace sinew::internal {

std::uint64_t stream_bytes(const at::Tensor& tensor);
template <class T>
std::uint64_t stream_bytes(const T& item);
template <class T>
std::uint64_t stream_bytes(const std::optional<T>& item);
template <class A, class B>
std::uint64_t stream_bytes(const std::pair<A, B>& item);
template <class... Ts>
std::uint64_t stream_bytes(const std::tuple<Ts...>& item);

template <class T, class = void>
inline constexpr bool has_items_v = false;
template <class T>
inline constexpr bool has_items_v<T, std::void_t<typename T::value_type, typename T::iterator>> =
    true;

template <class T, auto... kMembers>
std::uint64_t bytes_of_fields(const T& item, StructCodec<T, kMembers...>) {
  return (std::uint64_t{0} + ... + stream_bytes(item.*kMembers));
}

/// What an item takes in the buffers of a stream, as far as can be seen: types that are known to
/// this by their size alone may hold more.
template <class T>
std::uint64_t stream_bytes(const T& item) {
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    return sizeof(T);
  } else if constexpr (has_items_v<T>) {
    using Item = typename T::value_type;
    if constexpr (std::is_arithmetic_v<Item>) {
      return sizeof(T) + item.size() * sizeof(Item);
    } else {
      std::uint64_t sum = sizeof(T);
      for (const auto& each : item) sum += stream_bytes(each);
      return sum;
    }
  } else if constexpr (!std::is_same_v<ListedCodec<T>, NoCodec>) {
    return bytes_of_fields(item, ListedCodec<T>());
  } else {
    return sizeof(T);
  }
}
template <class T>
std::uint64_t stream_bytes(const std::optional<T>& item) {
  return sizeof(item) + (item.has_value() ? stream_bytes(*item) : 0);
}
template <class A, class B>
std::uint64_t stream_bytes(const std::pair<A, B>& item) {
  return stream_bytes(item.first) + stream_bytes(item.second);
}
template <class... Ts>
std::uint64_t stream_bytes(const std::tuple<Ts...>& item) {
  return std::apply(
      [](const auto&... each) { return (std::uint64_t{0} + ... + stream_bytes(each)); }, item);
}

}  // namespace sinew::internal
