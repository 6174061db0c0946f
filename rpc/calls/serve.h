#pragma once

#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/method_traits.h"

// The typed half of serving a call: everything before and after it works on encoded frames and is
// compiled once.
namespace sinew::internal {

/// The method by which a reference's value is fetched; every worker serves it for all types that
/// can travel.
inline constexpr std::string_view kFetchMethod = "sinew.fetch";
/// The method that lists the others; see WorkerOptions::list_methods.
inline constexpr std::string_view kListMethodsMethod = "sinew.methods";

using ServeFunction = void (*)(const std::shared_ptr<Invocation>& call);

template <class Tuple, std::size_t... I>
Tuple read_arguments(Invocation& call, std::index_sequence<I...>) {
  call.check_argument_count(sizeof...(I));
  // Braces, so that arguments are read (and refused) in order.
  return Tuple{Codec<std::tuple_element_t<I, Tuple>>::decode(call.argument(I))...};
}

/// The end of a method that returns nothing. Keeping its "result" keeps a placeholder, so that
/// remote() of it can be waited for.
void deliver_nothing(Invocation& call);

/// Sends a result, or keeps it when the caller asked for a reference.
template <class R>
void deliver(Invocation& call, R&& result) {
  using Value = std::decay_t<R>;
  if (call.retains()) {
    call.finish_retained(AnyValue::of(std::make_shared<Value>(std::forward<R>(result))));
  } else if constexpr (is_wire_type_v<Value>) {
    ValueWriter writer = call.result();
    Codec<Value>::encode(writer, result);
    call.finish();
  } else {
    call.fail_not_a_wire_type(typeid(Value));
  }
}

/// `arguments` live until the future is done: a coroutine refers to them.
template <class R>
void deliver_later(const std::shared_ptr<Invocation>& call, Future<R> future,
                   std::shared_ptr<void> arguments) {
  future.on_done([call, arguments = std::move(arguments)](const Future<R>& done) mutable {
    arguments.reset();
    call->guard_late([&] {
      if (auto error = done.error()) std::rethrow_exception(error);
      if constexpr (std::is_void_v<R>) {
        deliver_nothing(*call);
      } else if (call->retains()) {
        if constexpr (std::is_copy_constructible_v<R>) {
          deliver(*call, R(done.value()));
        } else {
          // The future's own value, which it keeps alive.
          const auto kept = std::make_shared<const Future<R>>(done);
          call->finish_retained(
              AnyValue::of(std::shared_ptr<R>(kept, const_cast<R*>(&kept->value()))));
        }
      } else if constexpr (is_wire_type_v<R>) {
        ValueWriter writer = call->result();
        Codec<R>::encode(writer, done.value());
        call->finish();
      } else {
        call->fail_not_a_wire_type(typeid(R));
      }
    });
  });
}

/// Runs `invoke` with `values`, which are moved from, and delivers what it returns.
template <class Traits, class Values, class Call>
void run_and_deliver(const std::shared_ptr<Invocation>& call, Values& values, const Call& invoke) {
  using Return = typename Traits::return_type;
  if constexpr (Traits::returns_future) {
    const auto arguments = std::make_shared<Values>(std::move(values));
    Future<typename Traits::result_type> result = invoke(*arguments);
    call->suspended_in_turn();
    deliver_later(call, std::move(result), arguments);
  } else if constexpr (std::is_void_v<Return>) {
    invoke(values);
    deliver_nothing(*call);
  } else {
    deliver(*call, invoke(values));
  }
}

template <auto Method>
void serve_method(const std::shared_ptr<Invocation>& call) {
  using Traits = MethodTraits<decltype(Method)>;
  using Values = typename Traits::values;
  auto values =
      read_arguments<Values>(*call, std::make_index_sequence<std::tuple_size_v<Values>>());
  // Before the method counts as entered: a call without its object did not run.
  if constexpr (Traits::is_member) call->target(typeid(typename Traits::class_type));
  if constexpr (Traits::returns_future) call->keep_room();
  call->when_ready([call, values = std::move(values)]() mutable {
    run_and_deliver<Traits>(call, values, [&](Values& arguments) -> typename Traits::return_type {
      if constexpr (Traits::is_member) {
        auto* object = static_cast<typename Traits::class_type*>(
            call->target(typeid(typename Traits::class_type)));
        return std::apply(
            [object](auto&&... a) -> typename Traits::return_type {
              return (object->*Method)(std::forward<decltype(a)>(a)...);
            },
            std::move(arguments));
      } else {
        return std::apply(Method, std::move(arguments));
      }
    });
  });
}

template <class Signature>
void serve_constructor(const std::shared_ptr<Invocation>& call) {
  using Traits = MethodTraits<Signature>;
  using Class = typename Traits::return_type;
  using Values = typename Traits::values;
  auto values =
      read_arguments<Values>(*call, std::make_index_sequence<std::tuple_size_v<Values>>());
  call->when_ready([call, values = std::move(values)]() mutable {
    std::apply(
        [&call](auto&&... a) {
          if (!call->retains()) {
            if constexpr (is_wire_type_v<Class>) {
              deliver(*call, Class(std::forward<decltype(a)>(a)...));
              return;
            } else {
              call->fail_not_a_wire_type(typeid(Class));
            }
          }
          // Made in place: a class with a mutex can be neither copied nor moved.
          call->finish_retained(
              AnyValue::of(std::make_shared<Class>(std::forward<decltype(a)>(a)...)));
        },
        std::move(values));
  });
}

}  // namespace sinew::internal
