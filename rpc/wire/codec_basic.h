#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <variant>

#include "sinew/rpc/wire/bytes.h"
#include "sinew/rpc/wire/codec_traits.h"
#include "sinew/rpc/wire/value_reader.h"
#include "sinew/rpc/wire/value_writer.h"

namespace c10 {
class Scalar;
}

namespace sinew {

struct WorkerInfo;

namespace internal {

template <class T>
inline constexpr bool is_character_v = std::is_same_v<T, char> || std::is_same_v<T, wchar_t> ||
                                       std::is_same_v<T, char16_t> || std::is_same_v<T, char32_t>;

// Plain char is left out, since it is a signed number here, an unsigned one there, and mostly meant
// as text. So are wider integers than the format has.
template <class T>
inline constexpr bool is_wire_integer_v = std::is_integral_v<T> && !std::is_same_v<T, bool> &&
                                          !is_character_v<T> && sizeof(T) <= sizeof(std::int64_t);

template <class T>
inline constexpr bool is_wire_enum_v = std::is_enum_v<T> && !std::is_same_v<T, std::byte>;

template <class T, class = void>
struct IsProtobufMessage : std::false_type {};
template <class T>
struct IsProtobufMessage<T, std::enable_if_t<std::is_class_v<T> && IsComplete<T>::value>>
    : std::is_base_of<google::protobuf::Message, T> {};

// "message<pkg.Name>"
std::string message_signature(const google::protobuf::Message& message);

template <class T>
void encode_integer(ValueWriter& writer, T value) {
  if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(std::uint64_t)) {
    writer.natural(value);
  } else {
    writer.integer(static_cast<std::int64_t>(value));
  }
}

template <class T>
T decode_integer(const ValueReader& reader) {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(std::uint64_t)) {
    return static_cast<T>(reader.natural());
  } else {
    return static_cast<T>(reader.integer(Limits::min(), Limits::max()));
  }
}

}  // namespace internal

// The codecs of single values. Those that are no templates stand in codec_basic.cc.

#define SINEW_DECLARE_CODEC_(Type)                              \
  template <>                                                   \
  struct Codec<Type> {                                          \
    static void encode(ValueWriter& writer, const Type& value); \
    static Type decode(const ValueReader& reader);              \
    static std::string signature();                             \
  }
SINEW_DECLARE_CODEC_(bool);
SINEW_DECLARE_CODEC_(float);
SINEW_DECLARE_CODEC_(double);
SINEW_DECLARE_CODEC_(std::string);
SINEW_DECLARE_CODEC_(Bytes);
SINEW_DECLARE_CODEC_(std::monostate);
SINEW_DECLARE_CODEC_(WorkerInfo);
// To use it, include <ATen/core/Tensor.h> or any header of LibTorch that does.
SINEW_DECLARE_CODEC_(at::Tensor);
/// As what it is: a boolean, an integer, a real, or a list of two reals if it is complex. To use
/// it, include <ATen/core/Scalar.h>, or <ATen/core/Tensor.h>. Symbolic ones cannot travel.
SINEW_DECLARE_CODEC_(c10::Scalar);
#undef SINEW_DECLARE_CODEC_

/// The result of a method that returns nothing.
template <>
struct Codec<void> {
  static void encode(ValueWriter& writer);
  static void decode(const ValueReader& reader);
  static std::string signature();
};

/// Receivers check the range of the type they expect.
template <class T>
struct Codec<T, std::enable_if_t<internal::is_wire_integer_v<T>>> {
  static void encode(ValueWriter& writer, T value) { internal::encode_integer(writer, value); }
  static T decode(const ValueReader& reader) { return internal::decode_integer<T>(reader); }
  static std::string signature() { return "integer"; }
};

/// Travels as its number. Any number of the underlying type is let through, as static_cast does.
template <class T>
struct Codec<T, std::enable_if_t<internal::is_wire_enum_v<T>>> {
  using Number = std::underlying_type_t<T>;
  static void encode(ValueWriter& writer, T value) {
    internal::encode_integer(writer, static_cast<Number>(value));
  }
  static T decode(const ValueReader& reader) {
    return static_cast<T>(internal::decode_integer<Number>(reader));
  }
  static std::string signature() { return "integer"; }
};

/// Any generated Protocol Buffers message.
template <class T>
struct Codec<T, std::enable_if_t<internal::IsProtobufMessage<T>::value>> {
  static void encode(ValueWriter& writer, const T& value) { writer.message(value); }
  static T decode(const ValueReader& reader) {
    T message;
    reader.message(message);
    return message;
  }
  static std::string signature() { return internal::message_signature(T::default_instance()); }
};

}  // namespace sinew
