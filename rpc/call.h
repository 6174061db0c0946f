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

template <auto Method>
constexpr bool check_method_name() {
  static_assert(has_value_v<MethodName<Method>>,
                "Sinew: this method has no name: write SINEW_METHOD(function); at global scope "
                "after its declaration");
  return has_value_v<MethodName<Method>>;
}

template <class Result>
constexpr bool check_result() {
  static_assert(std::is_void_v<Result> || is_wire_type_v<Result>,
                "Sinew: the result of this method has a type that cannot travel: call it with "
                "remote() to keep the result "
                "where it is made, or specialise sinew::Codec for the type");
  return std::is_void_v<Result> || is_wire_type_v<Result>;
}

}  // namespace internal

namespace internal {

template <auto Method, class... Args>
auto call_function(const Peer& peer, WhenFull when_full, Args&&... arguments) {
  using Traits = internal::MethodTraits<decltype(Method)>;
  using Result = typename Traits::result_type;
  using Parameters = typename Traits::parameters;
  static_assert(!Traits::is_member,
                "Sinew: a member function is called on an RRef<Class>, not on a peer: make the "
                "object with remote<Class>() "
                "first");
  constexpr bool ok = internal::check_method_name<Method>() && !Traits::is_member &&
                      internal::check_result<Result>() &&
                      internal::check_arguments(Parameters(), internal::TypeList<Args&&...>());
  if constexpr (ok) {
    using Text = internal::MethodText<MethodName<Method>, Traits>;
    internal::CallBuilder call(peer, Text::name, Text::signature());
    call.set_when_full(when_full);
    internal::write_arguments(call, Parameters(), std::forward<Args>(arguments)...);
    return internal::send_for<Result>(call);
  } else {
    return Future<Result>();
  }
}

}  // namespace internal

/// Calls a free (or static member) function on `peer` and returns at once.
/// The arguments are converted to the parameter types and written before this returns; tensors of 4
/// KiB and more are not copied, so they must not be changed in place until the future is complete
/// (docs/values.md). Throws RpcError for what is wrong with the call itself (invalid peer, bad
/// timeout, a value that cannot travel); everything later is the future's error: kUnavailable when
/// the peer is lost, kDeadlineExceeded, kCancelled, kResourceExhausted when too much is queued for
/// the peer (Peer::ready() tells when there is room), kUnimplemented for a method that the peer
/// does not serve, and whatever the handler threw. Thread-safe; may be called in handlers, also
/// back to the caller.
template <auto Method, class... Args>
auto rpc_async(const Peer& peer, Args&&... arguments) {
  return internal::call_function<Method>(peer, internal::WhenFull::kFail,
                                         std::forward<Args>(arguments)...);
}

/// Calls a function on `peer` and waits for its result. As rpc_async, but every error is thrown,
/// and where too much is queued for the peer the call waits, within its time limit. Blocks; within
/// a handler the thread's place in the pool is taken by another one meanwhile.
template <auto Method, class... Args>
auto rpc_sync(const Peer& peer, Args&&... arguments) {
  return internal::call_function<Method>(peer, internal::WhenFull::kWait,
                                         std::forward<Args>(arguments)...)
      .take();
}

}  // namespace sinew
