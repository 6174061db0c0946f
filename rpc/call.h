#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "sinew/rpc/calls/call_builder.h"
#include "sinew/rpc/calls/method_traits.h"
#include "sinew/rpc/method.h"
#include "sinew/rpc/peer.h"

namespace sinew {
namespace internal {

template <class P, class A>
constexpr void check_argument() {
  static_assert(std::is_convertible_v<A, std::decay_t<P>>,
                "Sinew: an argument of this call cannot be converted to the parameter's type: "
                "compare the call with the "
                "method's declaration");
}

/// True when the arguments fit; otherwise the sentence has been emitted.
template <class... P, class... A>
constexpr bool check_arguments(TypeList<P...> parameters, TypeList<A...>) {
  static_assert(sizeof...(P) == sizeof...(A),
                "Sinew: wrong number of arguments for this method (default arguments are not "
                "supported: pass them all)");
  if constexpr (sizeof...(P) == sizeof...(A)) {
    (check_argument<P, A>(), ...);
    return check_parameters(parameters) && (std::is_convertible_v<A, std::decay_t<P>> && ...);
  } else {
    return false;
  }
}

template <auto Method>
using ResultOfMethod = typename MethodTraits<decltype(Method)>::result_type;

template <class P, class A>
void write_argument(CallBuilder& call, A&& argument) {
  using Value = std::decay_t<P>;
  ValueWriter writer = call.argument();
  if constexpr (std::is_same_v<std::decay_t<A>, Value>) {
    Codec<Value>::encode(writer, argument);
  } else {
    Codec<Value>::encode(writer, static_cast<Value>(std::forward<A>(argument)));
  }
}

template <class... P, class... A>
void write_arguments(CallBuilder& call, TypeList<P...>, A&&... arguments) {
  (write_argument<P>(call, std::forward<A>(arguments)), ...);
}

template <class R>
Future<R> send_for(CallBuilder& call) {
  auto pending = std::make_unique<TypedPendingCall<R>>(call.runner());
  Future<R> future = pending->future();
  call.send(std::move(pending));
  return future;
}

template <class Result>
constexpr bool check_result() {
  static_assert(
      std::is_void_v<Result> || is_wire_type_v<Result>,
      "Sinew: the result of this method has a type that cannot travel: call it with "
      "remote() to keep the result where it is made; or, if it is a struct of yours, list "
      "its fields with SINEW_STRUCT before its first use, otherwise specialise "
      "sinew::Codec for it");
  constexpr bool has_stream = contains_stream_v<Result> && !is_stream_v<Result>;
  static_assert(
      !has_stream,
      "Sinew: the result of this method has a Stream in it, which is no value: return the "
      "Stream itself");
  return (std::is_void_v<Result> || is_wire_type_v<Result>)&&!has_stream;
}

template <auto Method>
constexpr bool check_free() {
  constexpr bool is_member = MethodTraits<decltype(Method)>::is_member;
  static_assert(!is_member,
                "Sinew: a member function is called on an RRef<Class>, not on a peer: make the "
                "object with remote<Class>() first");
  return !is_member;
}

// auto here, and in what follows: a mistake is then complained of where the call is.
template <auto Method, class... Args>
auto call_function(const Peer& peer, WhenFull when_full, Args&&... arguments) {
  if constexpr (check_method_name<Method>()) {
    using Traits = MethodTraits<decltype(Method)>;
    using Parameters = typename Traits::parameters;
    if constexpr (check_free<Method>() && check_result<ResultOfMethod<Method>>() &&
                  check_arguments(Parameters(), TypeList<Args&&...>())) {
      using Text = MethodText<MethodName<Method>, Traits>;
      CallBuilder call(peer, Text::name, Text::signature());
      call.set_when_full(when_full);
      if constexpr (kIsIdempotent<Method>) call.set_idempotent();
      write_arguments(call, Parameters(), std::forward<Args>(arguments)...);
      return send_for<ResultOfMethod<Method>>(call);
    } else {
      return Future<ResultOfMethod<Method>>();
    }
  } else {
    return Future<ResultOfMethod<Method>>();
  }
}

}  // namespace internal

template <auto Method, class... Args>
auto Peer::async(Args&&... arguments) const {
  return internal::call_function<Method>(*this, internal::WhenFull::kFail,
                                         std::forward<Args>(arguments)...);
}

template <auto Method, class... Args>
auto Peer::call(Args&&... arguments) const {
  return internal::call_function<Method>(*this, internal::WhenFull::kWait,
                                         std::forward<Args>(arguments)...)
      .take();
}

}  // namespace sinew
