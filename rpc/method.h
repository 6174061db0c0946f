#pragma once

#include <string_view>
#include <type_traits>

#include "sinew/rpc/calls/method_traits.h"

/// Methods: C++ functions that other workers may call, under the name that is written in the
/// source.
///
///     namespace app {
///     at::Tensor scale(const at::Tensor& input, double factor);
///     struct Agent {
///       std::int64_t select_action(std::int64_t observer, const at::Tensor& state);
///     };
///     struct Observer {
///       explicit Observer(std::int64_t seed);
///     };
///     }  // namespace app
///
///     SINEW_METHOD(app::scale);  // at global scope, next to the declaration
///     SINEW_METHOD(app::Agent::select_action);
///     SINEW_CLASS(app::Observer, std::int64_t);  // its constructor, for remote<app::Observer>()
///
/// These only attach a name; nothing runs before main. A worker serves what its MethodTable holds.
///
/// Parameters are taken by value, const reference or rvalue reference; default arguments are not
/// supported (every argument is passed: their values are not part of a function's type); results by
/// value or as Future<R>, which holds no thread while it is pending. Results by reference are
/// copied.

/// Names a free function, static or ordinary member function, under the spelling given.
#define SINEW_METHOD(...)                                   \
  template <>                                               \
  struct sinew::MethodName<&__VA_ARGS__> {                  \
    static constexpr std::string_view value = #__VA_ARGS__; \
  }

/// Names one function of an overload set. The name must differ from those of the others; the second
/// argument selects:
///     SINEW_METHOD_AS("app::add(int,int)", sinew::overload<int(int, int)>(&app::add));
#define SINEW_METHOD_AS(name, ...)                  \
  template <>                                       \
  struct sinew::MethodName<__VA_ARGS__> {           \
    static constexpr std::string_view value = name; \
  }

/// Names a class and the constructor that `remote<Class>(peer, arguments...)` calls:
/// SINEW_CLASS(Class, Parameters...).
#define SINEW_CLASS(...)                                                                \
  template <>                                                                           \
  struct sinew::ConstructorName<sinew::internal::ConstructorOf<__VA_ARGS__>> {          \
    static constexpr std::string_view value = #__VA_ARGS__;                             \
  };                                                                                    \
  /* No class: in its body names would be looked for in sinew first. */                 \
  template <>                                                                           \
  inline constexpr sinew::internal::TypeIs<sinew::internal::ConstructorOf<__VA_ARGS__>> \
      sinew::kPrimaryConstructor<sinew::internal::FirstOf<__VA_ARGS__>> {}

/// Names a further constructor, called as `remote<Class(Parameters...)>(peer, arguments...)`.
#define SINEW_CONSTRUCTOR(...)                                                 \
  template <>                                                                  \
  struct sinew::ConstructorName<sinew::internal::ConstructorOf<__VA_ARGS__>> { \
    static constexpr std::string_view value = #__VA_ARGS__;                    \
  }

namespace sinew {

/// Specialised by SINEW_METHOD.
template <auto Method>
struct MethodName {};

/// Specialised by SINEW_CLASS and SINEW_CONSTRUCTOR; `Signature` is Class(Parameters...).
template <class Signature>
struct ConstructorName {};

namespace internal {
struct NoType {};
}  // namespace internal

/// Specialised by SINEW_CLASS.
template <class Class>
inline constexpr internal::NoType kPrimaryConstructor{};
/// Its member `type` is the constructor's signature; there is none for a class without a name.
template <class Class>
using PrimaryConstructor = std::remove_const_t<decltype(kPrimaryConstructor<Class>)>;

namespace internal {
template <class R, class... P>
struct OverloadSelector {
  constexpr auto operator()(R (*function)(P...)) const { return function; }
  template <class C>
  constexpr auto operator()(R (C::*function)(P...)) const {
    return function;
  }
};
template <class Signature>
struct OverloadOf;
template <class R, class... P>
struct OverloadOf<R(P...)> {
  using type = OverloadSelector<R, P...>;
};
}  // namespace internal

/// Selects one function of an overload set by its signature: `overload<int(int, int)>(&app::add)`.
/// For const member functions write a static_cast.
template <class Signature>
inline constexpr typename internal::OverloadOf<Signature>::type overload{};

}  // namespace sinew
