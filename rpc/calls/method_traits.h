#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/wire/codec.h"

namespace sinew {

template <auto Method>
struct MethodName;
template <class Signature>
struct ConstructorName;

namespace internal {

template <class... T>
struct TypeList {
  static constexpr std::size_t size = sizeof...(T);
};

template <class T>
struct TypeIs {
  using type = T;
};

/// What a handler's return type is to its caller: Future<R> and references are peeled off.
template <class R>
struct ResultOf {
  using type = std::decay_t<R>;
  static constexpr bool is_future = false;
};
template <class R>
struct ResultOf<Future<R>> {
  using type = R;
  static constexpr bool is_future = true;
};

template <class C, class R, class... P>
struct FunctionTraits {
  using class_type = C;  // void for free functions
  using return_type = R;
  using result_type = typename ResultOf<R>::type;
  using parameters = TypeList<P...>;
  using values = std::tuple<std::decay_t<P>...>;
  static constexpr bool is_method = true;
  static constexpr bool is_member = !std::is_void_v<C>;
  static constexpr bool returns_future = ResultOf<R>::is_future;
};

/// So that the one complaint of a method that is none is not followed by others about its result.
struct NoResult {
  template <class T>
  operator T() const;
};
/// What is no function, e.g. a pointer to a lambda.
template <class F>
struct MethodTraits : FunctionTraits<void, NoResult> {
  static constexpr bool is_method = false;
};
template <class R, class... P>
struct MethodTraits<R (*)(P...)> : FunctionTraits<void, R, P...> {};
template <class R, class... P>
struct MethodTraits<R (*)(P...) noexcept> : FunctionTraits<void, R, P...> {};
template <class R, class C, class... P>
struct MethodTraits<R (C::*)(P...)> : FunctionTraits<C, R, P...> {};
template <class R, class C, class... P>
struct MethodTraits<R (C::*)(P...) noexcept> : FunctionTraits<C, R, P...> {};
template <class R, class C, class... P>
struct MethodTraits<R (C::*)(P...) const> : FunctionTraits<C, R, P...> {};
template <class R, class C, class... P>
struct MethodTraits<R (C::*)(P...) const noexcept> : FunctionTraits<C, R, P...> {};
template <class R, class C, class... P>
struct MethodTraits<R (C::*)(P...)&> : FunctionTraits<C, R, P...> {};
template <class R, class C, class... P>
struct MethodTraits<R (C::*)(P...)& noexcept> : FunctionTraits<C, R, P...> {};
template <class R, class C, class... P>
struct MethodTraits<R (C::*)(P...) const&> : FunctionTraits<C, R, P...> {};
template <class R, class C, class... P>
struct MethodTraits<R (C::*)(P...) const& noexcept> : FunctionTraits<C, R, P...> {};
template <class C, class... P>
struct MethodTraits<C(P...)> : FunctionTraits<void, C, P...> {};

template <class T, class = void>
inline constexpr bool has_value_v = false;
template <class T>
inline constexpr bool has_value_v<T, std::void_t<decltype(T::value)>> = true;
template <class T, class = void>
inline constexpr bool has_type_v = false;
template <class T>
inline constexpr bool has_type_v<T, std::void_t<typename T::type>> = true;

/// Checks one parameter type; each mistake is one sentence.
template <class P>
constexpr void check_parameter() {
  using Value = std::decay_t<P>;
  static_assert(!std::is_pointer_v<Value>,
                "Sinew: a remote method cannot take a pointer, since memory is not shared between "
                "workers: take a value, "
                "std::string, at::Tensor or RRef<T> instead");
  static_assert(!std::is_lvalue_reference_v<P> || std::is_const_v<std::remove_reference_t<P>> ||
                    is_stream_v<Value>,
                "Sinew: a remote method cannot take a non-const reference, since changes would be "
                "lost: return the new "
                "value instead");
  static_assert(
      std::is_pointer_v<Value> || is_wire_type_v<Value>,
      "Sinew: a parameter of this method has a type that cannot travel: if it is a struct "
      "of yours, list its fields with SINEW_STRUCT before its first use; otherwise "
      "specialise sinew::Codec for it, or pass RRef<T>");
}

template <class... P>
constexpr bool is_stream_last() {
  constexpr bool are_streams[] = {is_stream_v<std::decay_t<P>>..., false};
  for (std::size_t i = 0; i + 1 < sizeof...(P); ++i) {
    if (are_streams[i]) return false;
  }
  return true;
}

/// Streams among parameters: one, by value, behind all others.
template <class... P>
constexpr bool check_streams() {
  constexpr bool is_part =
      ((contains_stream_v<std::decay_t<P>> && !is_stream_v<std::decay_t<P>>) || ...);
  static_assert(!is_part,
                "Sinew: a parameter of this method has a Stream in it, which is no value: take the "
                "Stream itself, as the last parameter");
  constexpr bool is_referred_to =
      ((is_stream_v<std::decay_t<P>> && std::is_lvalue_reference_v<P>) || ...);
  static_assert(is_part || !is_referred_to,
                "Sinew: this method takes a Stream by reference, but a stream has one reader: take "
                "it by value");
  constexpr bool is_last = is_stream_last<P...>();
  static_assert(
      is_part || is_referred_to || is_last,
      "Sinew: this method takes a Stream that is not its last parameter: take one, behind "
      "all others");
  return !is_part && !is_referred_to && is_last;
}

template <class P>
inline constexpr bool parameter_ok_v =
    is_wire_type_v<std::decay_t<P>> && !std::is_pointer_v<std::decay_t<P>> &&
    (!std::is_lvalue_reference_v<P> || std::is_const_v<std::remove_reference_t<P>>);

/// Emits the sentence for each parameter that cannot travel; false if there is one, so that the
/// caller can leave out code which would only add the compiler's own complaints.
template <class... P>
constexpr bool check_parameters(TypeList<P...>) {
  (check_parameter<P>(), ...);
  constexpr bool streams_ok = check_streams<P...>();
  return streams_ok && (parameter_ok_v<P> && ...);
}

/// In a signature: the result has no wire form and can only stay where it was made.
inline constexpr char kKeptResult[] = "kept";

template <class Traits, class... P>
std::string signature_text(TypeList<P...>) {
  std::string text = "(";
  ((text += Codec<std::decay_t<P>>::signature(), text += ","), ...);
  if (text.back() == ',') text.pop_back();
  text += ")->";
  using Result = typename Traits::result_type;
  if constexpr (std::is_void_v<Result>) {
    text += "null";
  } else if constexpr (is_wire_type_v<Result>) {
    text += Codec<Result>::signature();
  } else {
    text += kKeptResult;
  }
  return text;
}

/// What both sides know of a method: its name and its language-neutral signature, made once.
template <class Name, class Traits>
struct MethodText {
  static constexpr std::string_view name = Name::value;
  static const std::string& signature() {
    // Never destroyed: threads look at it until the process is gone.
    static const auto& text =
        *new std::string(signature_text<Traits>(typename Traits::parameters()));
    return text;
  }
};

}  // namespace internal
}  // namespace sinew
