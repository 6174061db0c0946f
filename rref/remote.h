#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "sinew/rpc/call.h"
#include "sinew/rref/rref.h"

// Calls that leave a reference behind, and calls through references.
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
template <auto Method>
using KeptResult = KeptType<ResultOfMethod<Method>>;

template <auto Method, class Class>
constexpr bool check_member() {
  using Traits = MethodTraits<decltype(Method)>;
  static_assert(Traits::is_member,
                "Sinew: a free function is called on a peer, not on an RRef: call it on "
                "rref.peer(), or pass the RRef as an argument");
  static_assert(
      !Traits::is_member || std::is_same_v<typename Traits::class_type, Class>,
      "Sinew: this member function belongs to another class than the one that the RRef refers to");
  return Traits::is_member && std::is_same_v<typename Traits::class_type, Class>;
}

template <auto Method, class Class, class... Args>
constexpr bool check_member_call() {
  if constexpr (check_method_name<Method>()) {
    if constexpr (check_member<Method, Class>()) {
      return check_arguments(typename MethodTraits<decltype(Method)>::parameters(),
                             TypeList<Args&&...>());
    }
  }
  return false;
}

/// Calls that go to an object: `send` is given the written call.
template <auto Method, class Class, class Send, class... Args>
auto call_member(const RRef<Class>& object, Send send, Args&&... arguments) {
  using Traits = MethodTraits<decltype(Method)>;
  using Text = MethodText<MethodName<Method>, Traits>;
  const Peer peer = object.peer();
  CallBuilder call(peer, Text::name, Text::signature());
  write_call_target(object, call);
  if constexpr (kIsIdempotent<Method>) call.set_idempotent();
  write_arguments(call, typename Traits::parameters(), std::forward<Args>(arguments)...);
  return send(call, peer);
}

template <auto Method, class Class, class... Args>
auto call_object(const RRef<Class>& object, WhenFull when_full, Args&&... arguments) {
  using Result = ResultOfMethod<Method>;
  if constexpr (check_member_call<Method, Class, Args...>()) {
    if constexpr (check_result<Result>()) {
      return call_member<Method>(
          object,
          [when_full](CallBuilder& call, const Peer&) {
            call.set_when_full(when_full);
            return send_for<Result>(call);
          },
          std::forward<Args>(arguments)...);
    } else {
      return Future<Result>();
    }
  } else {
    return Future<Result>();
  }
}

template <auto Method, class... Args>
auto remote_function(const Peer& peer, Args&&... arguments) {
  if constexpr (check_method_name<Method>()) {
    using Traits = MethodTraits<decltype(Method)>;
    using Parameters = typename Traits::parameters;
    if constexpr (check_free<Method>() && check_arguments(Parameters(), TypeList<Args&&...>())) {
      using Text = MethodText<MethodName<Method>, Traits>;
      CallBuilder call(peer, Text::name, Text::signature());
      write_arguments(call, Parameters(), std::forward<Args>(arguments)...);
      return send_remote<KeptResult<Method>>(call, peer);
    } else {
      return RRef<KeptResult<Method>>();
    }
  } else {
    return RRef<KeptResult<Method>>();
  }
}

/// What remote<ClassOrSignature>() makes, and by which constructor.
template <class ClassOrSignature>
struct Making {
  using made = ClassOrSignature;
  static constexpr bool check() { return check_service<ClassOrSignature>(); }
  template <class Class = ClassOrSignature>
  using constructor = typename ServiceOf<Class>::constructor;
};
template <class Class, class... P>
struct Making<Class(P...)> {
  using made = Class;
  static constexpr bool check() { return check_constructor_name<Class(P...)>(); }
  template <class = void>
  using constructor = Class(P...);
};

template <class ClassOrSignature, class... Args>
auto remote_object(const Peer& peer, Args&&... arguments) {
  using Made = typename Making<ClassOrSignature>::made;
  if constexpr (Making<ClassOrSignature>::check()) {
    using Constructor = typename Making<ClassOrSignature>::template constructor<>;
    using Traits = MethodTraits<Constructor>;
    using Parameters = typename Traits::parameters;
    if constexpr (check_arguments(Parameters(), TypeList<Args&&...>())) {
      using Text = MethodText<ConstructorName<Constructor>, Traits>;
      CallBuilder call(peer, Text::name, Text::signature());
      write_arguments(call, Parameters(), std::forward<Args>(arguments)...);
      return send_remote<Made>(call, peer);
    } else {
      return RRef<Made>();
    }
  } else {
    return RRef<Made>();
  }
}

}  // namespace internal

template <auto Method, class... Args>
auto Peer::remote(Args&&... arguments) const {
  return internal::remote_function<Method>(*this, std::forward<Args>(arguments)...);
}
template <class ClassOrSignature, class... Args>
auto Peer::remote(Args&&... arguments) const {
  return internal::remote_object<ClassOrSignature>(*this, std::forward<Args>(arguments)...);
}

template <class T>
template <auto Method, class... Args>
auto RRef<T>::async(Args&&... arguments) const {
  return internal::call_object<Method>(*this, internal::WhenFull::kFail,
                                       std::forward<Args>(arguments)...);
}
template <class T>
template <auto Method, class... Args>
auto RRef<T>::call(Args&&... arguments) const {
  return internal::call_object<Method>(*this, internal::WhenFull::kWait,
                                       std::forward<Args>(arguments)...)
      .take();
}
template <class T>
template <auto Method, class... Args>
auto RRef<T>::remote(Args&&... arguments) const {
  using Kept = internal::KeptResult<Method>;
  if constexpr (internal::check_member_call<Method, T, Args...>()) {
    return internal::call_member<Method>(
        *this,
        [](internal::CallBuilder& call, const Peer& peer) {
          return internal::send_remote<Kept>(call, peer);
        },
        std::forward<Args>(arguments)...);
  } else {
    return RRef<Kept>();
  }
}

}  // namespace sinew
