#pragma once

/// Coroutines of C++20: `co_await` of a Future, and functions that return one. Not part of sinew.h:
/// programs in C++17 never see it.
///
///     sinew::Future<double> mean_of_all(const std::string& name) {   // a method like any other
///       const sinew::Worker worker = sinew::current_worker();
///       double sum = 0;
///       for (const sinew::WorkerInfo& peer : worker.workers()) {
///         sum += co_await worker.peer(peer).async<&app::figure>(name);
///       }
///       co_return sum / worker.workers().size();
///     }
///     SINEW_METHOD(mean_of_all);
///
/// `co_await future` waits as Future::wait() does, but holds no thread, and gives the value or
/// throws the error: of a named future a const reference, of a temporary the value itself, moved
/// out if it has no other holder (Future::take()). A future that is done does not suspend.
///
/// A coroutine that returns Future<T> starts at once, on the thread that calls it, and goes on
/// after each co_await on the executor that it has run on: in a handler, that of its worker.
/// Outside of one it goes on where callbacks of the awaited future run: on the executor of the
/// worker that the future comes from, or, if it comes from none, on the thread that completes it.
///
/// Its CallContext, its autograd context (ContextScope, also one that is open across a co_await)
/// and LibTorch's modes (NoGradGuard, InferenceMode) go with it; the thread that it leaves gets
/// back what it had. Locks of a mutex and guards of streams do not: end their scopes before. What
/// it does after a co_await comes after what it had queued on the current streams of devices, and
/// the value that it returns is ready for the current streams of its reader.
///
/// In a handler a co_await ends with RpcError kDeadlineExceeded at the deadline of the call that is
/// served, and with kCancelled when that is cancelled (its caller gave it up, or was lost), as do
/// the calls that the handler has made. What a coroutine lets escape becomes the error of its
/// future. To drop that future does not end the coroutine.
///
/// Parameters that are references refer to what the caller has: the arguments of a method live
/// until its future is done. Elsewhere take parameters by value that are used after a co_await.
///
/// `co_await` works in coroutines of other types too (of a task library, say); there only the
/// ThreadContext, that is CallContext and autograd context, is set for what follows.

#if __cplusplus < 202002L
#error "sinew/rpc/coroutine.h needs C++20: compile this file with -std=c++20"
#endif

// Before version 17 clang has what it needs but does not say so to libstdc++.
#if defined(__clang__) && !defined(__cpp_impl_coroutine)
#error \
    "sinew/rpc/coroutine.h needs a compiler that has coroutines: for clang before 17 with libstdc++, add -D__cpp_impl_coroutine=201902L"
#endif

#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/queued_work.h"
#include "sinew/rpc/internal/coroutine_frame.h"
#include "sinew/rpc/internal/coroutine_wait.h"

namespace sinew {
namespace internal {

/// How a future is awaited: by the name of one that stays, or as a temporary.
enum class Awaited { kShared, kTaken };

template <class T, Awaited awaited>
class FutureAwaiter {
 public:
  explicit FutureAwaiter(Future<T> future) : future_(std::move(future)) {}

  bool await_ready() const { return future_.done(); }

  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> coroutine) {
    CoroutineFrame* frame = nullptr;
    if constexpr (std::is_base_of_v<CoroutineFrame, Promise>) frame = &coroutine.promise();
    wait_ = std::make_shared<CoroutineWait>(
        FutureAccess::core(future_), coroutine.address(),
        [](void* address) { std::coroutine_handle<>::from_address(address).resume(); }, frame);
    return wait_->suspend();
  }

  decltype(auto) await_resume() {
    if (wait_ != nullptr) wait_->resumed();
    if constexpr (awaited == Awaited::kTaken) {
      return std::move(future_).take();
    } else {
      return future_.value();
    }
  }

 private:
  Future<T> future_;
  std::shared_ptr<CoroutineWait> wait_;
};

/// The outcome of a coroutine, until its frame is gone.
template <class T>
struct CoroutineOutcome {
  // The guards of streams in the coroutine are gone by then.
  void complete(const Promise<T>& promise) {
    if (work != nullptr) work->precede_this_thread();
    if (error != nullptr) {
      promise.set_error(std::move(error));
    } else {
      promise.set_value(*std::move(value));
    }
  }

  std::optional<Stored<T>> value;
  // What the value depends on.
  std::shared_ptr<const QueuedWork> work;
  std::exception_ptr error;
};

template <class T>
class CoroutineReturn {
 public:
  void return_value(T value) {
    outcome_.value.emplace(std::move(value));
    outcome_.work = queued_work(QueuedOn::kAllStreams);
  }

 protected:
  CoroutineOutcome<T> outcome_;
};
template <>
class CoroutineReturn<void> {
 public:
  void return_void() {
    outcome_.value.emplace();
    outcome_.work = queued_work(QueuedOn::kSideStreams);
  }

 protected:
  CoroutineOutcome<void> outcome_;
};

template <class T>
class CoroutinePromise final : public CoroutineReturn<T>, public CoroutineFrame {
 public:
  Future<T> get_return_object() { return promise_.future(); }
  std::suspend_never initial_suspend() const noexcept { return {}; }
  void unhandled_exception() { this->outcome_.error = std::current_exception(); }

  /// The future is done once the frame is gone, with all that it holds and refers to.
  struct End {
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<CoroutinePromise> coroutine) const noexcept {
      CoroutinePromise& self = coroutine.promise();
      self.leave_thread_for_good();
      const Promise<T> promise = std::move(self.promise_);
      CoroutineOutcome<T> outcome = std::move(self.outcome_);
      coroutine.destroy();
      outcome.complete(promise);
    }
    void await_resume() const noexcept {}
  };
  End final_suspend() const noexcept { return {}; }

 private:
  Promise<T> promise_;
};

}  // namespace internal

template <class T>
auto operator co_await(Future<T>&& future) {
  return internal::FutureAwaiter<T, internal::Awaited::kTaken>(std::move(future));
}
template <class T>
auto operator co_await(const Future<T>& future) {
  return internal::FutureAwaiter<T, internal::Awaited::kShared>(future);
}

}  // namespace sinew

/// A function that returns Future<T> may be a coroutine.
template <class T, class... Arguments>
struct std::coroutine_traits<sinew::Future<T>, Arguments...> {
  using promise_type = sinew::internal::CoroutinePromise<T>;
};
