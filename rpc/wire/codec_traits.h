#pragma once

#include <type_traits>

namespace sinew {

class ValueReader;
class ValueWriter;

/// Maps the C++ type T to the wire format. Only specialisations exist; see codec.h for how to write
/// one. Each has
///
///   static void encode(ValueWriter& writer, const T& value);
///   static T decode(const ValueReader& reader);
///   static std::string signature();   // "list<real>": the type without any language's words
template <class T, class Enable = void>
struct Codec;

namespace internal {

template <class T, class = void>
struct IsComplete : std::false_type {};
template <class T>
struct IsComplete<T, std::void_t<decltype(sizeof(T))>> : std::true_type {};

}  // namespace internal

/// Whether T can be an argument or a result: it has a Codec, and so has everything it is made of.
/// The Codec of a type of your own must be declared before the first use of this.
template <class T>
inline constexpr bool is_wire_type_v = internal::IsComplete<Codec<T>>::value;

template <class... Ts>
inline constexpr bool are_wire_types_v = (is_wire_type_v<Ts> && ...);

}  // namespace sinew
