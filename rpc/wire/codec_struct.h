#pragma once

#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "sinew/rpc/base/internal/for_each.h"
#include "sinew/rpc/base/internal/global_scope.h"
#include "sinew/rpc/wire/codec_containers.h"

/// Makes a struct with public fields a wire type, at global scope, behind its definition and before
/// its first use: SINEW_STRUCT(app::Point, x, y, label). It travels as the list of these fields, in
/// this order, up to 64. A type that has a comma in its name needs an alias.
///
/// That no field is missing is checked when the program is compiled, since one that is left out
/// would have its default at the receiver. Not checked are types with a constructor or a base
/// class, and fields that {} does not initialise: there a field may be missing. For a struct some
/// fields of which are to stay where they are, derive its Codec from StructCodec.
#define SINEW_STRUCT(...)                         \
  SINEW_INTERNAL_AT_GLOBAL_SCOPE("SINEW_STRUCT"); \
  SINEW_INTERNAL_STRUCT(SINEW_INTERNAL_HEAD(__VA_ARGS__, ), __VA_ARGS__)
#define SINEW_INTERNAL_STRUCT(Struct, ...)                                                         \
  SINEW_INTERNAL_CHECK_FIELDS(SINEW_INTERNAL_CAT(sinew_struct_, __COUNTER__), Struct,              \
                              __VA_ARGS__);                                                        \
  /* No class: in its head and body names would be looked for in sinew first. */                   \
  template <>                                                                                      \
  inline constexpr sinew::StructCodec<Struct SINEW_INTERNAL_FOR_EACH(SINEW_INTERNAL_FIELD, Struct, \
                                                                     __VA_ARGS__)>                 \
      sinew::internal::kStructCodec<Struct> {}
#define SINEW_INTERNAL_CHECK_FIELDS(no_more, Struct, ...)                                      \
  static constexpr bool no_more = sinew::internal::has_no_more_fields<Struct>(                 \
      [](auto* value) -> decltype(void(                                                        \
                          std::remove_pointer_t<decltype(value)>{SINEW_INTERNAL_FOR_EACH(      \
                              SINEW_INTERNAL_EMPTY_FIELD, ~, __VA_ARGS__){}})) {});            \
  static_assert(no_more, "Sinew: " SINEW_INTERNAL_TEXT(Struct)                               \
                         " has a field that SINEW_STRUCT does not list, which would get its " \
                         "default at the receiver: list all fields"); \
  static_assert(!sinew::internal::has_repetitions(                                             \
                    {SINEW_INTERNAL_FOR_EACH(SINEW_INTERNAL_FIELD_NAME, ~, __VA_ARGS__) ""}),  \
                "Sinew: SINEW_STRUCT lists a field of " SINEW_INTERNAL_TEXT(                   \
                    Struct) " twice: list each once")
#define SINEW_INTERNAL_EMPTY_FIELD(unused, field) {},
#define SINEW_INTERNAL_FIELD_NAME(unused, field) #field,
#define SINEW_INTERNAL_FIELD(Struct, field) , &Struct::field

namespace sinew {
namespace internal {

/// Converts to the base classes of T.
template <class T>
struct BaseOf {
  template <class Base,
            class = std::enable_if_t<std::is_base_of_v<Base, T> && !std::is_same_v<Base, T>>>
  operator Base() const;
};
template <class T, class = void>
inline constexpr bool has_base_v = false;
/// Base classes are the first elements of an aggregate.
template <class T>
inline constexpr bool has_base_v<T, std::void_t<decltype(T{BaseOf<T>()})>> = true;

/// `one_more(T*)` can be called if {} initialises one field more than are listed.
template <class T, class OneMore>
constexpr bool has_no_more_fields(OneMore) {
  return !std::is_aggregate_v<T> || has_base_v<T> || !std::is_invocable_v<OneMore, T*>;
}

constexpr bool has_repetitions(std::initializer_list<std::string_view> names) {
  for (const std::string_view* name = names.begin(); name != names.end(); ++name) {
    for (const std::string_view* other = names.begin(); other != name; ++other) {
      if (*other == *name) return true;
    }
  }
  return false;
}

// Notes which struct types a signature is being made of, so that a type that contains itself ends
// in a word instead of an endless text.
class SignatureScope {
 public:
  explicit SignatureScope(const void* type);
  ~SignatureScope();
  SignatureScope(const SignatureScope&) = delete;
  SignatureScope& operator=(const SignatureScope&) = delete;
  bool entered_before() const { return entered_before_; }

 private:
  const void* const type_;
  const SignatureScope* const outer_;
  bool entered_before_ = false;
};

struct NoCodec {};
/// Specialised by SINEW_STRUCT.
template <class T>
inline constexpr NoCodec kStructCodec{};
template <class T>
using ListedCodec = std::remove_const_t<decltype(kStructCodec<T>)>;

template <class T>
struct MemberType;
template <class T, class M>
struct MemberType<M T::*> {
  using type = M;
};
/// Whether it can be read and written: it is neither static nor const, nor a function.
template <class Member>
inline constexpr bool is_field_v = false;
template <class T, class M>
inline constexpr bool is_field_v<M T::*> = std::is_object_v<M> && !std::is_const_v<M>;

}  // namespace internal

/// Codec of a type as the list of those fields that are written, in that order: what SINEW_STRUCT
/// makes of a struct. The others have their defaults at the receiver.
///
///     template <>
///     struct sinew::Codec<app::Point> : sinew::StructCodec<app::Point, &app::Point::x> {};
///
/// The receiver checks the number of fields, so a field that is added at the end makes old and new
/// programs refuse each other's values. T needs a default constructor.
template <class T, auto... kMembers>
struct StructCodec {
  static void encode(ValueWriter& writer, const T& value) {
    if constexpr (check<kMembers...>()) {
      [[maybe_unused]] ListWriter list = writer.list(sizeof...(kMembers));
      (encode_field<kMembers>(list, value), ...);
    }
  }
  static T decode(const ValueReader& reader) {
    if constexpr (check<kMembers...>()) {
      T value{};
      [[maybe_unused]] const ListReader list = reader.list(sizeof...(kMembers));
      [[maybe_unused]] std::size_t index = 0;
      (decode_field<kMembers>(list, index++, value), ...);
      return value;
    } else {
      std::abort();  // Is never compiled to the end.
    }
  }
  /// A struct that contains itself (a tree) says "recursive" in the inner place.
  static std::string signature() {
    const internal::SignatureScope scope(&kTypeTag);
    if (scope.entered_before()) return "recursive";
    if constexpr (check<kMembers...>()) {
      return internal::tuple_signature({Codec<FieldOf<kMembers>>::signature()...});
    } else {
      return {};
    }
  }

 private:
  template <auto kMember>
  using FieldOf = typename internal::MemberType<decltype(kMember)>::type;
  static constexpr char kTypeTag = 0;

  // Not in the body of the class: there a struct that contains itself would ask for its own,
  // unfinished Codec.
  template <auto... kFields>
  static constexpr bool check() {
    constexpr bool are_fields = (internal::is_field_v<decltype(kFields)> && ...);
    static_assert(are_fields,
                  "Sinew: a field of this struct is const, static or a function, so that the "
                  "receiver cannot set it: leave it out, in a Codec that derives from StructCodec");
    static_assert(std::is_default_constructible_v<T>,
                  "Sinew: the receiver makes this struct without arguments and then sets its "
                  "fields: give it a default constructor, or write its Codec");
    if constexpr (are_fields) {
      static_assert(
          are_wire_types_v<FieldOf<kFields>...>,
          "Sinew: a field of this struct has a type that cannot travel: if it is a struct "
          "of yours too, list its fields with SINEW_STRUCT before this one; otherwise "
          "specialise sinew::Codec for it");
      constexpr bool has_stream = (internal::contains_stream_v<FieldOf<kFields>> || ...);
      static_assert(!has_stream,
                    "Sinew: a field of this struct is a Stream, which is no value: let the method "
                    "return it, or take it as its last parameter");
      return std::is_default_constructible_v<T> && are_wire_types_v<FieldOf<kFields>...> &&
             !has_stream;
    } else {
      return false;
    }
  }
  template <auto kMember>
  static void encode_field(ListWriter& list, const T& value) {
    ValueWriter field = list.next();
    Codec<FieldOf<kMember>>::encode(field, value.*kMember);
  }
  template <auto kMember>
  static void decode_field(const ListReader& list, std::size_t index, T& value) {
    value.*kMember = Codec<FieldOf<kMember>>::decode(list.item(index));
  }
};

template <class T>
struct Codec<T, std::enable_if_t<std::is_class_v<T> &&
                                 !std::is_same_v<internal::ListedCodec<T>, internal::NoCodec>>>
    : internal::ListedCodec<T> {};

}  // namespace sinew
