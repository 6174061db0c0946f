#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "sinew/rpc/call.h"
#include "sinew/rref/rref.h"

namespace sinew {
namespace internal {

template <class T>
RRef<T> send_remote(CallBuilder& call, const Peer& peer) {
  call.set_when_full(WhenFull::kFail);
  RemoteCreation creation = begin_remote(call, peer, typeid(T));
  call.send(std::move(creation.pending));
  return RRefAccess::make<T>(std::move(creation.handle));
}

/// What stands behind a reference to the result of a method that returns nothing.
template <class R>
using KeptType = std::conditional_t<std::is_void_v<R>, std::monostate, R>;

template <auto Method, class Class>
constexpr bool check_member() {
  using Traits = MethodTraits<decltype(Method)>;
  static_assert(Traits::is_member,
                "Sinew: a free function is called on a peer, not on an RRef: pass rref.peer(), or "
                "pass the RRef as an argument");
  static_assert(
      !Traits::is_member || std::is_same_v<typename Traits::class_type, Class>,
      "Sinew: this member function belongs to another class than the one that the RRef refers to");
  return Traits::is_member && std::is_same_v<typename Traits::class_type, Class>;
}

/// Calls that go to an object: `send` is given the written call.
template <auto Method, class Class, class Send, class... Args>
auto call_member(const RRef<Class>& object, const CallOptions& options, Send send,
                 Args&&... arguments) {
  using Traits = MethodTraits<decltype(Method)>;
  using Text = MethodText<MethodName<Method>, Traits>;
  const Peer peer = object.peer(options);
  CallBuilder call(peer, Text::name, Text::signature());
  RRefAccess::handle(object)->write_target(call);
  write_arguments(call, typename Traits::parameters(), std::forward<Args>(arguments)...);
  return send(call, peer);
}

template <auto Method, class Class, class... Args>
constexpr bool check_member_call() {
  using Traits = MethodTraits<decltype(Method)>;
  return check_method_name<Method>() && check_member<Method, Class>() &&
         check_arguments(typename Traits::parameters(), TypeList<Args&&...>());
}

}  // namespace internal

/// A reference with options for the calls made through it:
///
///     sinew::CallOptions options;
///     options.timeout = std::chrono::seconds(1);
///     rpc_sync<&Agent::act>(with(agent, options), state);
template <class T>
struct RRefWithOptions {
  const RRef<T>& rref;
  CallOptions options;
};
template <class T>
RRefWithOptions<T> with(const RRef<T>& rref, CallOptions options) {
  return {rref, std::move(options)};
}

namespace internal {

template <auto Method, class Class, class... Args>
auto call_object(const RRefWithOptions<Class>& object, internal::WhenFull when_full,
                 Args&&... arguments) {
  using Result = typename internal::MethodTraits<decltype(Method)>::result_type;
  if constexpr (internal::check_member_call<Method, Class, Args...>() &&
                internal::check_result<Result>()) {
    return internal::call_member<Method>(
        object.rref, object.options,
        [when_full](CallBuilder& call, const Peer&) {
          call.set_when_full(when_full);
          return send_for<Result>(call);
        },
        std::forward<Args>(arguments)...);
  } else {
    return Future<Result>();
  }
}

}  // namespace internal

/// Calls a member function on the object that `object` refers to, at its owner; waits there until
/// the object exists. Otherwise as rpc_async on a peer.
template <auto Method, class Class, class... Args>
auto rpc_async(const RRefWithOptions<Class>& object, Args&&... arguments) {
  return internal::call_object<Method>(object, internal::WhenFull::kFail,
                                       std::forward<Args>(arguments)...);
}
template <auto Method, class Class, class... Args>
auto rpc_async(const RRef<Class>& object, Args&&... arguments) {
  return rpc_async<Method>(with(object, {}), std::forward<Args>(arguments)...);
}
template <auto Method, class Class, class... Args>
auto rpc_sync(const RRefWithOptions<Class>& object, Args&&... arguments) {
  return internal::call_object<Method>(object, internal::WhenFull::kWait,
                                       std::forward<Args>(arguments)...)
      .take();
}
template <auto Method, class Class, class... Args>
auto rpc_sync(const RRef<Class>& object, Args&&... arguments) {
  return rpc_sync<Method>(with(object, {}), std::forward<Args>(arguments)...);
}

/// Calls a function on `peer` and keeps its result there. Returns a usable reference at once; using
/// it waits, at the owner, for the call. If the call fails every later use fails with its error.
template <auto Method, class... Args>
auto remote(const Peer& peer, Args&&... arguments) {
  using Traits = internal::MethodTraits<decltype(Method)>;
  using Kept = internal::KeptType<typename Traits::result_type>;
  using Parameters = typename Traits::parameters;
  static_assert(!Traits::is_member,
                "Sinew: a member function is called on an RRef<Class>, not on a peer: make the "
                "object with remote<Class>() "
                "first");
  if constexpr (internal::check_method_name<Method>() && !Traits::is_member &&
                internal::check_arguments(Parameters(), internal::TypeList<Args&&...>())) {
    using Text = internal::MethodText<MethodName<Method>, Traits>;
    internal::CallBuilder call(peer, Text::name, Text::signature());
    internal::write_arguments(call, Parameters(), std::forward<Args>(arguments)...);
    return internal::send_remote<Kept>(call, peer);
  } else {
    return RRef<Kept>();
  }
}

/// Calls a member function on a remote object and keeps its result there.
template <auto Method, class Class, class... Args>
auto remote(const RRefWithOptions<Class>& object, Args&&... arguments) {
  using Kept = internal::KeptType<typename internal::MethodTraits<decltype(Method)>::result_type>;
  if constexpr (internal::check_member_call<Method, Class, Args...>()) {
    return internal::call_member<Method>(
        object.rref, object.options,
        [](internal::CallBuilder& call, const Peer& peer) {
          return internal::send_remote<Kept>(call, peer);
        },
        std::forward<Args>(arguments)...);
  } else {
    return RRef<Kept>();
  }
}
template <auto Method, class Class, class... Args>
auto remote(const RRef<Class>& object, Args&&... arguments) {
  return remote<Method>(with(object, {}), std::forward<Args>(arguments)...);
}

/// Makes an object on `peer`: `remote<app::Observer>(peer, seed)` with the constructor named by
/// SINEW_CLASS, or `remote<app::Observer(int, int)>(peer, 1, 2)` with one named by
/// SINEW_CONSTRUCTOR.
template <class ClassOrSignature, class... Args>
auto remote(const Peer& peer, Args&&... arguments) {
  constexpr bool is_signature = std::is_function_v<ClassOrSignature>;
  static_assert(
      is_signature || internal::has_type_v<PrimaryConstructor<ClassOrSignature>>,
      "Sinew: this class has no name: write SINEW_CLASS(Class, Parameters...); at global scope");
  if constexpr (is_signature || internal::has_type_v<PrimaryConstructor<ClassOrSignature>>) {
    using Signature = typename std::conditional_t<is_signature, internal::TypeIs<ClassOrSignature>,
                                                  PrimaryConstructor<ClassOrSignature>>::type;
    using Traits = internal::MethodTraits<Signature>;
    using Class = typename Traits::return_type;
    using Parameters = typename Traits::parameters;
    static_assert(internal::has_value_v<ConstructorName<Signature>>,
                  "Sinew: this constructor has no name: write SINEW_CONSTRUCTOR(Class, "
                  "Parameters...); at global scope");
    if constexpr (internal::has_value_v<ConstructorName<Signature>> &&
                  internal::check_arguments(Parameters(), internal::TypeList<Args&&...>())) {
      using Text = internal::MethodText<ConstructorName<Signature>, Traits>;
      internal::CallBuilder call(peer, Text::name, Text::signature());
      internal::write_arguments(call, Parameters(), std::forward<Args>(arguments)...);
      return internal::send_remote<Class>(call, peer);
    } else {
      return RRef<Class>();
    }
  } else {
    return RRef<ClassOrSignature>();
  }
}

}  // namespace sinew
