#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "sinew/rpc/wire/codec_containers.h"

namespace sinew {
namespace internal {

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

template <class T>
struct MemberType;
template <class T, class M>
struct MemberType<M T::*> {
  using type = M;
};

}  // namespace internal

/// Codec of a struct as the list of its fields, in the order that is written. See codec.h.
///
/// The receiver checks the number of fields, so a field that is added at the end makes old and new
/// programs refuse each other's values. T needs a default constructor.
template <class T, auto... kMembers>
struct StructCodec {
  static void encode(ValueWriter& writer, const T& value) {
    check<kMembers...>();
    [[maybe_unused]] ListWriter list = writer.list(sizeof...(kMembers));
    (encode_field<kMembers>(list, value), ...);
  }
  static T decode(const ValueReader& reader) {
    check<kMembers...>();
    [[maybe_unused]] const ListReader list = reader.list(sizeof...(kMembers));
    T value{};
    [[maybe_unused]] std::size_t index = 0;
    (decode_field<kMembers>(list, index++, value), ...);
    return value;
  }
  /// A struct that contains itself (a tree) says "recursive" in the inner place.
  static std::string signature() {
    const internal::SignatureScope scope(&kTypeTag);
    if (scope.entered_before()) return "recursive";
    return internal::tuple_signature({Codec<FieldOf<kMembers>>::signature()...});
  }

 private:
  template <auto kMember>
  using FieldOf = typename internal::MemberType<decltype(kMember)>::type;
  static constexpr char kTypeTag = 0;

  // Not in the body of the class: there a struct that contains itself would ask for its own,
  // unfinished Codec.
  template <auto... kFields>
  static constexpr void check() {
    static_assert(are_wire_types_v<FieldOf<kFields>...>,
                  "sinew::StructCodec: a field's type cannot travel; give it a sinew::Codec "
                  "(see docs/values.md)");
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

}  // namespace sinew
