#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/attributes.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/future_state.h"

namespace sinew {

template <class T>
class Promise;

namespace internal {
class Executor;
struct FutureAccess;
}  // namespace internal

/// A handle on a value that is there later, or on the error that took its place. Copies share it.
/// T may be void, move-only or not default-constructible; it must not be a reference.
///
/// Callbacks (then(), on_done()) run in the order in which they were registered, one after the
/// other. A callback that blocks lets the later ones start. Futures of a worker run them on the
/// worker's executor, never inside the call that registers or completes. A future that belongs to
/// no executor runs them inline: in the completing thread, or in the caller of then() if it is
/// complete already. The same happens once the executor is shut down, so that no callback is lost.
///
/// Thread-safe, as with std::shared_ptr: several threads may use copies, or const functions of one
/// handle.
template <class T>
class Future {
  static_assert(!std::is_reference_v<T>,
                "a Future holds a value: use a pointer or std::reference_wrapper");

 public:
  using Result = std::conditional_t<std::is_void_v<T>, void, std::add_lvalue_reference_t<const T>>;

  /// No future: every function but valid() throws RpcError kFailedPrecondition.
  Future() = default;

  bool valid() const { return ref_.get() != nullptr; }
  /// True once there is a value or an error. Never blocks.
  bool done() const { return core().done(); }

  /// Blocks until done, then returns the value or throws the error; each time it is called.
  /// In a handler, ends with RpcError kDeadlineExceeded at the deadline of the call that is being
  /// served, and with kResourceExhausted if too many handlers wait already. The reference is valid
  /// for as long as a Future of this value lives: copy the value out if this one is a temporary.
  Result wait() const ABSL_ATTRIBUTE_LIFETIME_BOUND {
    core().wait();
    return get();
  }
  /// As wait(), but throws RpcError kDeadlineExceeded after `timeout`, which leaves the future as
  /// it is.
  Result wait_for(std::chrono::nanoseconds timeout) const ABSL_ATTRIBUTE_LIFETIME_BOUND {
    core().wait_for(timeout);
    return get();
  }
  /// As wait(), but throws RpcError kFailedPrecondition unless done().
  Result value() const ABSL_ATTRIBUTE_LIFETIME_BOUND {
    core().require_value();
    return get();
  }
  /// Null if not done or if there is a value.
  std::exception_ptr error() const { return core().error(); }

  /// Waits, and returns the value itself: moved out if this is the only Future and no callback is
  /// pending, else copied. This handle is invalid afterwards, unless wait() throws.
  /// Throws RpcError kFailedPrecondition if the value is shared and cannot be copied.
  T take();

  /// Registers a continuation: f(const T&) (f() if T is void), which is not run if there is an
  /// error, or f(Future<T>), which always runs. Returns the future of its result, flattened if it
  /// returns a Future. That future fails with the error of this one (first form) or with what f
  /// throws. Throws RpcError kInvalidArgument if f is null.
  template <class F>
  auto then(F f) const;

  /// Registers f(const Future<T>&) or f(). What it throws is logged and dropped.
  /// Throws RpcError kInvalidArgument if f is null.
  template <class F>
  void on_done(F f) const;

 private:
  template <class U>
  friend class Promise;
  friend struct internal::FutureAccess;
  using State = internal::FutureState<T>;

  explicit Future(internal::Reader ref) : ref_(std::move(ref)) {}

  internal::FutureCore& core() const {
    if (!valid()) internal::throw_invalid_future();
    return *ref_.get();
  }
  Result get() const {
    if constexpr (!std::is_void_v<T>) return static_cast<State&>(*ref_.get()).stored();
  }

  internal::Reader ref_;
};

/// The completing end of a Future. Copies share it; when the last one goes without having completed
/// it, the future fails with kCancelled. Thread-safe: of several completers one wins.
template <class T>
class Promise {
 public:
  /// Callbacks run on the executor whose task makes the promise, or inline if there is none.
  Promise() : Promise(internal::FutureCore::current_runner()) {}
  /// Callbacks run on `executor`, or inline if it is null.
  explicit Promise(internal::Executor* executor) : Promise(internal::runner_of(executor)) {}

  Future<T> future() const { return Future<T>(internal::Reader(state())); }

  /// Throw RpcError kFailedPrecondition if the future was completed before.
  void set_value(internal::Stored<T> value = internal::OnlyForVoid<T>::value()) const {
    if (!try_set_value(std::move(value))) internal::throw_completed_twice();
  }
  void set_error(std::exception_ptr error) const {
    if (!try_set_error(std::move(error))) internal::throw_completed_twice();
  }
  void set_error(RpcError error) const { set_error(std::make_exception_ptr(std::move(error))); }

  /// Return false, and drop the outcome, if the future was completed before.
  bool try_set_value(internal::Stored<T> value = internal::OnlyForVoid<T>::value()) const {
    return state()->try_set(std::move(value));
  }
  bool try_set_error(std::exception_ptr error) const {
    if (error == nullptr) internal::throw_null_error();
    return state()->try_fail(std::move(error));
  }
  bool try_set_error(RpcError error) const {
    return try_set_error(std::make_exception_ptr(std::move(error)));
  }

 private:
  friend struct internal::FutureAccess;
  using State = internal::FutureState<T>;

  explicit Promise(std::shared_ptr<internal::TaskRunner> runner)
      : ref_(std::make_shared<State>(std::move(runner))) {}

  // A copy, since the thread that waits may destroy this Promise while the completing call still
  // runs.
  std::shared_ptr<State> state() const {
    if (ref_.get() == nullptr) internal::throw_invalid_future();
    return std::static_pointer_cast<State>(ref_.get());
  }

  internal::Writer ref_;
};

template <class T>
Future<std::decay_t<T>> make_ready_future(T&& value) {
  Promise<std::decay_t<T>> promise;
  promise.set_value(std::forward<T>(value));
  return promise.future();
}

inline Future<void> make_ready_future() {
  Promise<void> promise;
  promise.set_value();
  return promise.future();
}

template <class T>
Future<T> make_failed_future(std::exception_ptr error) {
  Promise<T> promise;
  promise.set_error(std::move(error));
  return promise.future();
}

/// A future of all values in the order of `futures`, done when all are or at the first error.
/// Values are moved out of futures that have no other holder, else copied. Throws RpcError
/// kInvalidArgument that names the first invalid element.
template <class T>
auto collect_all(std::vector<Future<T>> futures);

/// Waits for all of `futures` and returns their values in order (nothing for Future<void>), or
/// throws the first error as soon as it is there. Otherwise as collect_all().
template <class T>
auto wait_all(std::vector<Future<T>> futures) {
  return collect_all(std::move(futures)).take();
}

}  // namespace sinew

#include "sinew/rpc/base/internal/future_inl.h"
