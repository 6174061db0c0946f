#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "sinew/rpc/wire/codec_basic.h"

namespace sinew {
namespace internal {

std::string variant_signature(std::initializer_list<std::string> alternatives);
/// Throws RpcError kInvalidArgument.
[[noreturn]] void fail_valueless_variant();

}  // namespace internal

/// A list of two: the index of the alternative, from 0, and its value. The receiver checks the
/// index. A variant that lost its value to an exception cannot travel.
template <class... Ts>
struct Codec<std::variant<Ts...>,
             std::enable_if_t<(sizeof...(Ts) > 0) && are_wire_types_v<Ts...>>> {
  using Variant = std::variant<Ts...>;

  static void encode(ValueWriter& writer, const Variant& value) {
    if (value.valueless_by_exception()) internal::fail_valueless_variant();
    ListWriter list = writer.list(2);
    list.next().integer(static_cast<std::int64_t>(value.index()));
    ValueWriter alternative = list.next();
    encode_alternative(alternative, value, std::index_sequence_for<Ts...>());
  }
  static Variant decode(const ValueReader& reader) {
    const ListReader list = reader.list(2);
    const auto index = static_cast<std::size_t>(list.item(0).natural(sizeof...(Ts) - 1));
    const ValueReader alternative = list.item(1);
    return decode_alternative(index, alternative, std::index_sequence_for<Ts...>());
  }
  static std::string signature() {
    return internal::variant_signature({Codec<Ts>::signature()...});
  }

 private:
  // By index, since two alternatives may have the same type.
  template <std::size_t... Is>
  static void encode_alternative(ValueWriter& writer, const Variant& value,
                                 std::index_sequence<Is...>) {
    ((value.index() == Is && (Codec<Ts>::encode(writer, std::get<Is>(value)), true)) || ...);
  }
  template <std::size_t I>
  static Variant decode_as(const ValueReader& reader) {
    return Variant(std::in_place_index<I>,
                   Codec<std::variant_alternative_t<I, Variant>>::decode(reader));
  }
  template <std::size_t... Is>
  static Variant decode_alternative(std::size_t index, const ValueReader& reader,
                                    std::index_sequence<Is...>) {
    using Decode = Variant (*)(const ValueReader&);
    constexpr Decode kDecoders[] = {&decode_as<Is>...};
    return kDecoders[index](reader);
  }
};

}  // namespace sinew
