#pragma once

#include <cstddef>
#include <type_traits>

namespace sinew {

class ValueReader;
class ValueWriter;

/// Maps the C++ type T to the wire format. Only specialisations exist; see codec.h for how to write
/// one. Each has
///
///     static void encode(ValueWriter& writer, const T& value);
///     static T decode(const ValueReader& reader);
///     static std::string signature();  // "list<real>": the type without any language's words
template <class T, class Enable = void>
struct Codec;

namespace internal {

template <class T, class = void>
struct IsComplete : std::false_type {};
template <class T>
struct IsComplete<T, std::void_t<decltype(sizeof(T))>> : std::true_type {};

/// Streams are no values: they stand where a method's result or its last argument stands, and
/// nowhere else. Specialised by the layer of streams.
template <class T>
inline constexpr bool is_stream_v = false;
/// T is a stream, or is made of one, as containers are made of their items.
template <class T>
inline constexpr bool contains_stream_v = is_stream_v<T>;
template <template <class...> class Container, class... Ts>
inline constexpr bool contains_stream_v<Container<Ts...>> = is_stream_v<Container<Ts...>> ||
                                                            (contains_stream_v<Ts> || ...);
template <template <class, std::size_t> class Container, class T, std::size_t N>
inline constexpr bool contains_stream_v<Container<T, N>> = contains_stream_v<T>;

}  // namespace internal

/// Whether T can be an argument or a result: it has a Codec, and so has everything it is made of.
/// The Codec of a type of your own must be declared before the first use of this.
template <class T>
inline constexpr bool is_wire_type_v = internal::IsComplete<Codec<T>>::value;

template <class... Ts>
inline constexpr bool are_wire_types_v = (is_wire_type_v<Ts> && ...);

}  // namespace sinew
