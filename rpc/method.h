#pragma once

#include <string_view>
#include <type_traits>

#include "sinew/rpc/base/internal/for_each.h"
#include "sinew/rpc/base/internal/global_scope.h"
#include "sinew/rpc/calls/method_traits.h"

/// Methods: C++ functions that other workers may call, under the name that is written in the
/// source.
///
///     namespace app {
///     at::Tensor scale(const at::Tensor& input, double factor);
///     double mean(const at::Tensor& input);
///     class Agent {
///      public:
///       explicit Agent(Settings settings);
///       std::int64_t select_action(std::int64_t observer, const at::Tensor& state);
///       void report_reward(std::int64_t observer, double reward);
///     };
///     }  // namespace app
///
///     SINEW_METHOD(app::scale, app::mean);  // at global scope, behind the declaration
///     SINEW_SERVICE(app::Agent, (app::Settings), select_action, report_reward);
///
/// These only attach names; nothing runs before main. A worker serves what its MethodTable holds.
///
/// Parameters are taken by value, const reference or rvalue reference; default arguments are not
/// supported (every argument is passed: their values are not part of a function's type); results by
/// value or as Future<R>, which holds no thread while it is pending. Results by reference are
/// copied.

/// Names functions, up to 64: free ones, static or ordinary member functions. Write it behind their
/// declaration and before their first use in a call or a MethodTable.
#define SINEW_METHOD(...)                                                  \
  SINEW_INTERNAL_AT_GLOBAL_SCOPE("SINEW_METHOD");                          \
  SINEW_INTERNAL_FOR_EACH(SINEW_INTERNAL_NAME_FUNCTION, ~, ~, __VA_ARGS__) \
  static_assert(true)
#define SINEW_INTERNAL_NAME_FUNCTION(unused, function) \
  SINEW_INTERNAL_NAME(SINEW_INTERNAL_CAT(sinew_method_, __COUNTER__), #function, &function);

/// Says of named functions, up to 64, that they may run several times for one call: a second time
/// does no harm. Calls that may have run are repeated then, where the caller wants it: see
/// Peer::retrying(). Write it before their first use in a call; it concerns callers only.
///
///     SINEW_IDEMPOTENT(app::mean, app::Replay::size);
#define SINEW_IDEMPOTENT(...)                                                \
  SINEW_INTERNAL_AT_GLOBAL_SCOPE("SINEW_IDEMPOTENT");                        \
  SINEW_INTERNAL_FOR_EACH(SINEW_INTERNAL_MARK_IDEMPOTENT, ~, ~, __VA_ARGS__) \
  static_assert(true)
#define SINEW_INTERNAL_MARK_IDEMPOTENT(unused, function) \
  template <>                                            \
  inline constexpr bool sinew::kIsIdempotent<&function> = true;

/// Names one function of an overload set, or of a function template, which have no name of their
/// own; the call and the MethodTable are given the same second argument:
///     SINEW_METHOD_AS("app::add(int,int)", sinew::overload<int(int, int)>(&app::add));
///     SINEW_METHOD_AS("app::sum<double>", &app::sum<double>);
///
///     double x = peer.call<&app::sum<double>>(numbers);
#define SINEW_METHOD_AS(name, ...)                   \
  SINEW_INTERNAL_AT_GLOBAL_SCOPE("SINEW_METHOD_AS"); \
  SINEW_INTERNAL_NAME(SINEW_INTERNAL_CAT(sinew_method_, __COUNTER__), name, __VA_ARGS__)

// The lambda is generic so that a name that stands for several functions is no error by itself.
#define SINEW_INTERNAL_ONE_METHOD(method, name, ...)                                         \
  static constexpr auto method = sinew::internal::one_method(                                \
      [](auto same) -> decltype(same(__VA_ARGS__)) { return same(__VA_ARGS__); });           \
  static_assert(sinew::internal::is_one_v<decltype(method)>,                                 \
                "Sinew: " name                                                               \
                " is overloaded or a function template: name each by itself, as in "         \
                "SINEW_METHOD_AS(\"app::add(int)\", sinew::overload<int(int)>(&app::add))"); \
  static_assert(!sinew::internal::is_one_v<decltype(method)> ||                              \
                    sinew::internal::is_method_v<decltype(method)>,                          \
                "Sinew: " name                                                               \
                " is no function: a lambda or an object has no name that another program "   \
                "could look up; write a function, or a member function")
#define SINEW_INTERNAL_METHOD_NAME(method, name)    \
  template <>                                       \
  struct sinew::MethodName<method> {                \
    static constexpr std::string_view value = name; \
  }
#define SINEW_INTERNAL_NAME(method, name, ...)          \
  SINEW_INTERNAL_ONE_METHOD(method, name, __VA_ARGS__); \
  SINEW_INTERNAL_METHOD_NAME(method, name)

/// Names a class for `remote<Class>()` and serve<Class>(): the parameter types of the constructor
/// that is called for others, in parentheses, and up to 64 member functions. Write it behind the
/// class and before its first use.
///
/// Further constructors are named by SINEW_CONSTRUCTOR, member functions elsewhere by SINEW_METHOD,
/// and overloaded ones by SINEW_METHOD_AS; add() and add_constructor() add them to a MethodTable.
/// So are the member functions of a class that others do not make, and which has no SINEW_SERVICE.
#define SINEW_SERVICE(Class, ...)                  \
  SINEW_INTERNAL_AT_GLOBAL_SCOPE("SINEW_SERVICE"); \
  SINEW_INTERNAL_SERVICE(sinew::internal::Service, Class, __VA_ARGS__)
#define SINEW_INTERNAL_SERVICE(Service, Class, ...)                              \
  SINEW_INTERNAL_CAT(SINEW_INTERNAL_SERVICE_,                                    \
                     SINEW_INTERNAL_IS_LIST(SINEW_INTERNAL_HEAD(__VA_ARGS__, ))) \
  (SINEW_INTERNAL_CAT(sinew_service_, __COUNTER__), Service, Class,              \
   SINEW_INTERNAL_HEAD(__VA_ARGS__, ), __VA_ARGS__)
#define SINEW_INTERNAL_SERVICE_0(scope, Service, Class, constructor, ...)                       \
  static_assert(                                                                                \
      false,                                                                                    \
      "Sinew: the name of the class is followed by the parameter types of its constructor, in " \
      "parentheses, and then its methods, as in SINEW_SERVICE(app::Agent, (), act)")
#define SINEW_INTERNAL_SERVICE_1(scope, Service, Class, parameters, ...)                      \
  SINEW_INTERNAL_FOR_EACH(SINEW_INTERNAL_NAME_MEMBER, (scope, Class), __VA_ARGS__)            \
  SINEW_INTERNAL_NAME_CONSTRUCTOR(SINEW_INTERNAL_TEXT(Class), Class parameters);              \
  /* No class: in its body names would be looked for in sinew first. */                       \
  template <>                                                                                 \
  inline constexpr Service<Class parameters SINEW_INTERNAL_FOR_EACH(SINEW_INTERNAL_MEMBER_OF, \
                                                                    scope, __VA_ARGS__)>      \
      sinew::kService<Class> {}
#define SINEW_INTERNAL_MEMBER_OF(scope, method) , scope::method
#define SINEW_INTERNAL_NAME_MEMBER(context, method) \
  SINEW_INTERNAL_NAME_MEMBER_(SINEW_INTERNAL_PAIR context, method)
#define SINEW_INTERNAL_PAIR(scope, Class) scope, Class
#define SINEW_INTERNAL_NAME_MEMBER_(...) SINEW_INTERNAL_NAME_MEMBER_OF(__VA_ARGS__)
#define SINEW_INTERNAL_NAME_MEMBER_OF(scope, Class, method)                                     \
  namespace scope {                                                                             \
  SINEW_INTERNAL_ONE_METHOD(method, #Class "::" #method, &Class::method);                       \
  }                                                                                             \
  static_assert(                                                                                \
      sinew::internal::is_method_of_v<Class, decltype(scope::method)>,                          \
      "Sinew: " #Class "::" #method                                                             \
      " is a member function of a base class, and an RRef of this one does not call it: write " \
      "one here that does");                                                                    \
  SINEW_INTERNAL_METHOD_NAME(scope::method, #Class "::" #method);

/// Names a further constructor: SINEW_CONSTRUCTOR(app::Agent(int, double)), which
/// `remote<app::Agent(int, double)>(...)` calls.
#define SINEW_CONSTRUCTOR(...)                         \
  SINEW_INTERNAL_AT_GLOBAL_SCOPE("SINEW_CONSTRUCTOR"); \
  SINEW_INTERNAL_NAME_CONSTRUCTOR(#__VA_ARGS__, __VA_ARGS__)
#define SINEW_INTERNAL_NAME_CONSTRUCTOR(name, ...)                                      \
  static_assert(sinew::internal::is_constructor_v<__VA_ARGS__>,                         \
                "Sinew: " name                                                          \
                " has no constructor that takes these parameter types: " #__VA_ARGS__); \
  template <>                                                                           \
  struct sinew::ConstructorName<__VA_ARGS__> {                                          \
    static constexpr std::string_view value = name;                                     \
  }

namespace sinew {

class MethodRules;

/// Specialised by SINEW_IDEMPOTENT.
template <auto Method>
inline constexpr bool kIsIdempotent = false;

/// Specialised by SINEW_METHOD.
template <auto Method>
struct MethodName {};

/// Specialised by SINEW_SERVICE and SINEW_CONSTRUCTOR; `Signature` is Class(Parameters...).
template <class Signature>
struct ConstructorName {};

namespace internal {

struct NoService {};
/// What SINEW_SERVICE says of a class; `Constructor` is Class(Parameters...).
template <class Constructor, auto... Methods>
struct Service {
  using constructor = Constructor;
  template <class Table>
  static void add_to(Table& methods, const MethodRules& rules) {
    methods.template add_constructor<Constructor>(rules);
    methods.template add<Methods...>(rules);
  }
};

}  // namespace internal

/// Specialised by SINEW_SERVICE.
template <class Class>
inline constexpr internal::NoService kService{};

namespace internal {

template <class Class>
using ServiceOf = std::remove_const_t<decltype(kService<Class>)>;
template <class Class>
inline constexpr bool has_service_v = !std::is_same_v<ServiceOf<Class>, NoService>;

struct Same {
  template <class F>
  constexpr F operator()(F one) const {
    return one;
  }
};
/// `give` calls what it is given with a function. That is the result, or null if there are several.
template <class Give>
constexpr auto one_method(Give give) {
  if constexpr (std::is_invocable_v<Give, Same>) {
    return give(Same());
  } else {
    return nullptr;
  }
}
template <class Method>
inline constexpr bool is_one_v = !std::is_null_pointer_v<std::remove_const_t<Method>>;

/// What follows is one sentence for each mistake, and false.
template <auto Method>
constexpr bool check_method_name() {
  constexpr bool is_method = MethodTraits<decltype(Method)>::is_method;
  static_assert(is_method,
                "Sinew: this is no function: a lambda or an object has no name that another "
                "program could look up; write a function, or a member function");
  static_assert(
      !is_method || has_value_v<MethodName<Method>>,
      "Sinew: this method has no name here: write SINEW_METHOD(function); at global scope, "
      "behind its declaration and before its first use, or list it in the SINEW_SERVICE of its "
      "class");
  return is_method && has_value_v<MethodName<Method>>;
}
template <class Signature>
constexpr bool check_constructor_name() {
  static_assert(
      has_value_v<ConstructorName<Signature>>,
      "Sinew: this constructor has no name here: write SINEW_CONSTRUCTOR(Class(Parameters...)); at "
      "global scope, behind the class and before its first use");
  return has_value_v<ConstructorName<Signature>>;
}
template <class Class>
constexpr bool check_service() {
  static_assert(has_service_v<Class>,
                "Sinew: this class has no name here: write SINEW_SERVICE(Class, (Parameters...), "
                "methods...); at global scope, behind the class and before its first use");
  return has_service_v<Class>;
}

template <class F>
inline constexpr bool is_method_v = MethodTraits<std::remove_const_t<F>>::is_method;
/// Static member functions belong to any class; what is no method at all is complained of
/// elsewhere.
template <class Class, class F>
inline constexpr bool is_method_of_v =
    !is_method_v<F> || !MethodTraits<std::remove_const_t<F>>::is_member ||
    std::is_same_v<typename MethodTraits<std::remove_const_t<F>>::class_type, Class>;

template <class Signature>
inline constexpr bool is_constructor_v = false;
template <class Class, class... P>
inline constexpr bool is_constructor_v<Class(P...)> =
    std::is_constructible_v<Class, std::decay_t<P>...>;

template <class Signature>
struct OverloadSelector;
template <class R, class... P>
struct OverloadSelector<R(P...)> {
  constexpr auto operator()(R (*function)(P...)) const { return function; }
  template <class C>
  constexpr auto operator()(R (C::*function)(P...)) const {
    return function;
  }
};
template <class R, class... P>
struct OverloadSelector<R(P...) const> {
  template <class C>
  constexpr auto operator()(R (C::*function)(P...) const) const {
    return function;
  }
};

}  // namespace internal

/// Selects one function of an overload set by its signature: `overload<int(int, int)>(&app::add)`,
/// `overload<int(int) const>(&app::Agent::act)`.
template <class Signature>
inline constexpr internal::OverloadSelector<Signature> overload{};

}  // namespace sinew
