#pragma once

// The templates of future.h; included by it.

#include "sinew/rpc/base/future.h"

namespace sinew {
namespace internal {

/// What rpc/ and the templates here may do with a future beyond its public functions.
struct FutureAccess {
  template <class T>
  static Promise<T> make_promise(std::shared_ptr<TaskRunner> runner) {
    return Promise<T>(std::move(runner));
  }
  template <class T>
  static Future<T> make_future(Reader reader) {
    return Future<T>(std::move(reader));
  }
  template <class T>
  static FutureCore& core(const Future<T>& future) {
    return future.core();
  }
  /// Gives up the handle, so that it no longer counts as a reader.
  template <class T>
  static std::shared_ptr<FutureCore> release(Future<T> future) {
    return future.ref_.get();
  }

  enum class Production {
    /// The future is done at once, and its first reader (a waiting thread, or a callback on the
    /// executor)
    /// runs the producer; it is destroyed unrun if there never is one.
    kOnFirstRead,
    /// The producer runs in this call.
    kNow,
  };
  /// Completes with what `producer` returns or throws. It runs once at most. Returns false, and
  /// destroys it unrun, if the future was completed before.
  template <class T>
  static bool complete_lazily(const Promise<T>& promise, typename FutureState<T>::Producer producer,
                              Production production = Production::kOnFirstRead) {
    return production == Production::kNow ? promise.state()->try_produce(std::move(producer))
                                          : promise.state()->try_defer(std::move(producer));
  }
};

template <class F>
bool is_null_callback(const F& f) {
  if constexpr (std::is_pointer_v<F> || std::is_constructible_v<F, std::nullptr_t>) {
    return f == nullptr;
  } else {
    return false;
  }
}

/// std::is_copy_constructible, but looks into containers, which claim to be copyable whatever they
/// hold.
template <class T, class = void>
struct IsCopyable : std::is_copy_constructible<T> {};
template <class C>
struct IsCopyable<C, std::void_t<typename C::value_type>>
    : std::conjunction<std::is_copy_constructible<C>, IsCopyable<typename C::value_type>> {};

template <class R>
struct Flattened {
  using type = R;
  static constexpr bool is_future = false;
};
template <class R>
struct Flattened<Future<R>> {
  using type = R;
  static constexpr bool is_future = true;
};

/// How a continuation F of a Future<T> is called, and what it returns.
template <class T, class F>
struct Continuation {
  static constexpr bool takes_value = std::is_invocable_v<F&, const T&>;
  static_assert(takes_value || std::is_invocable_v<F&, Future<T>>,
                "then() needs a function that can be called with const T& or with Future<T>");
  using Argument = std::conditional_t<takes_value, const T&, Future<T>>;
  using Returned = std::decay_t<std::invoke_result_t<F&, Argument>>;

  static decltype(auto) call(F& f, Future<T> parent) {
    if constexpr (takes_value) {
      return std::invoke(f, parent.value());
    } else {
      return std::invoke(f, std::move(parent));
    }
  }
};

template <class F>
struct Continuation<void, F> {
  static constexpr bool takes_value = std::is_invocable_v<F&>;
  static_assert(takes_value || std::is_invocable_v<F&, Future<void>>,
                "then() of a Future<void> needs a function that can be called with nothing or with "
                "Future<void>");

  static decltype(auto) call(F& f, Future<void> parent) {
    if constexpr (takes_value) {
      return std::invoke(f);
    } else {
      return std::invoke(f, std::move(parent));
    }
  }
  using Returned = std::decay_t<decltype(call(std::declval<F&>(), std::declval<Future<void>>()))>;
};

/// Completes `child` as `inner` completes.
template <class T>
void forward(Future<T> inner, Promise<T> child) {
  if (!inner.valid()) return child.set_error(invalid_inner_future());
  const std::shared_ptr<FutureCore> core = FutureAccess::release(std::move(inner));
  core->on_settled([child = std::move(child)](Reader reader) {
    Future<T> settled = FutureAccess::make_future<T>(std::move(reader));
    std::exception_ptr error = settled.error();
    if (error == nullptr) {
      try {
        if constexpr (std::is_void_v<T>) {
          child.try_set_value();
        } else {
          child.try_set_value(settled.take());
        }
        return;
      } catch (...) {
        error = std::current_exception();
      }
    }
    child.try_set_error(std::move(error));
  });
}

/// Runs the continuation and completes `child` with what it returns or throws.
template <class T, class F, class R>
void run_continuation(F& f, Future<T> parent, const Promise<R>& child) {
  using Call = Continuation<T, F>;
  if constexpr (Call::takes_value) {
    if (std::exception_ptr error = parent.error(); error != nullptr) {
      child.try_set_error(std::move(error));
      return;
    }
  }
  std::exception_ptr error;
  try {
    if constexpr (Flattened<typename Call::Returned>::is_future) {
      return forward<R>(Call::call(f, std::move(parent)), child);
    } else if constexpr (std::is_void_v<R>) {
      Call::call(f, std::move(parent));
      child.try_set_value();
      return;
    } else {
      child.try_set_value(Call::call(f, std::move(parent)));
      return;
    }
  } catch (...) {
    error = std::current_exception();
  }
  child.try_set_error(std::move(error));
}

/// The futures of a collect_all() while some of them are pending.
template <class T>
struct Collection {
  using All = std::conditional_t<std::is_void_v<T>, void, std::vector<Stored<T>>>;

  Collection(std::vector<Future<T>> members, std::shared_ptr<TaskRunner> runner)
      : futures(std::move(members)),
        pending(futures.size()),
        promise(FutureAccess::make_promise<All>(std::move(runner))) {}

  // Once the last value is there no other member can complete the promise. Both the futures and the
  // promise leave the collection then: kept here, the promise's state would keep itself alive.
  void finish() {
    const Promise<All> last = std::move(promise);
    FutureAccess::complete_lazily<All>(last, [all = std::move(futures)]() mutable -> All {
      if constexpr (!std::is_void_v<T>) {
        All values;
        values.reserve(all.size());
        for (Future<T>& future : all) values.push_back(future.take());
        return values;
      }
    });
  }

  std::vector<Future<T>> futures;
  std::atomic<std::size_t> pending;
  Promise<All> promise;
};

}  // namespace internal

template <class T>
T Future<T>::take() {
  core().wait();
  const Future last = std::move(*this);
  if constexpr (!std::is_void_v<T>) {
    T& value = static_cast<State&>(*last.ref_.get()).stored();
    if (last.core().begin_take()) return std::move(value);
    if constexpr (internal::IsCopyable<T>::value) {
      return value;
    } else {
      internal::throw_cannot_take();
    }
  }
}

template <class T>
template <class F>
auto Future<T>::then(F f) const {
  using R = typename internal::Flattened<typename internal::Continuation<T, F>::Returned>::type;
  if (internal::is_null_callback(f)) internal::throw_null_callback();
  auto child = internal::FutureAccess::make_promise<R>(core().runner());
  Future<R> result = child.future();
  core().add_callback(
      [child = std::move(child), f = std::move(f)](internal::Reader reader) mutable {
        internal::run_continuation<T, F, R>(f, Future<T>(std::move(reader)), child);
      });
  return result;
}

template <class T>
template <class F>
void Future<T>::on_done(F f) const {
  if (internal::is_null_callback(f)) internal::throw_null_callback();
  core().add_callback([f = std::move(f)](internal::Reader reader) mutable {
    const Future<T> self(std::move(reader));
    try {
      if constexpr (std::is_invocable_v<F&, const Future<T>&>) {
        std::invoke(f, self);
      } else {
        std::invoke(f);
      }
    } catch (...) {
      internal::log_callback_failure(std::current_exception());
    }
  });
}

template <class T>
auto collect_all(std::vector<Future<T>> futures) {
  using Collection = internal::Collection<T>;
  for (std::size_t i = 0; i < futures.size(); ++i) {
    if (!futures[i].valid()) internal::throw_invalid_element(i, futures.size());
  }
  std::vector<std::shared_ptr<internal::FutureCore>> cores;
  cores.reserve(futures.size());
  for (const Future<T>& future : futures) {
    cores.push_back(internal::FutureAccess::core(future).shared_from_this());
  }
  auto runner = cores.empty() ? internal::FutureCore::current_runner() : cores.front()->runner();
  const auto collection = std::make_shared<Collection>(std::move(futures), std::move(runner));
  auto result = collection->promise.future();
  if (cores.empty()) collection->finish();
  for (const auto& core : cores) {
    core->on_settled([collection](internal::Reader reader) {
      // This reader must be gone before the last value is announced: who takes it counts the
      // readers.
      std::exception_ptr error = internal::FutureAccess::make_future<T>(std::move(reader)).error();
      if (error != nullptr) {
        collection->promise.try_set_error(std::move(error));
      } else if (collection->pending.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        collection->finish();
      }
    });
  }
  return result;
}

}  // namespace sinew
