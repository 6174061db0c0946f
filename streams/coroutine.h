#pragma once

/// Streams in coroutines of C++20. Not part of sinew.h: programs in C++17 never see it.
///
///     sinew::Stream<std::int64_t> count(std::int64_t n) {  // a generator, and a method
///       for (std::int64_t i = 0; i < n; ++i) co_yield i;
///     }
///     sinew::Future<double> sum(sinew::Stream<double> numbers) {
///       double sum = 0;
///       while (std::optional<double> number = co_await numbers) sum += *number;
///       co_return sum;
///     }
///
/// A coroutine that returns a Stream starts at once, on the thread that calls it, and holds no
/// thread while it waits: at co_yield while its buffer is full, and at co_await, which is that of
/// rpc/coroutine.h. It ends the stream where it ends; what it lets escape ends the stream with that
/// error. Once the stream is not read any more co_yield throws kCancelled. Take its parameters by
/// value: the arguments of the call are gone before it ends.
///
/// `co_await stream` is `co_await stream.next_async()`.

#include "sinew/rpc/coroutine.h"
#include "sinew/streams/stream.h"

namespace sinew {
namespace internal {

/// The wait of a co_yield: none, if there is room.
class YieldAwaiter {
 public:
  YieldAwaiter() = default;
  explicit YieldAwaiter(Future<void> room) : room_(FutureWait(std::move(room))) {}

  bool await_ready() const { return !room_.has_value() || room_->await_ready(); }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> coroutine) {
    return room_->await_suspend(coroutine);
  }
  void await_resume() {
    if (room_.has_value()) room_->await_resume();
  }

 private:
  using FutureWait = FutureAwaiter<void, Awaited::kTaken>;
  std::optional<FutureWait> room_;
};

template <class T>
class StreamPromise final : public CoroutineFrame {
 public:
  StreamPromise() : ends_(make_stream<T>()) {}

  Stream<T> get_return_object() { return std::move(ends_.stream); }
  std::suspend_never initial_suspend() const noexcept { return {}; }
  YieldAwaiter yield_value(T item) {
    TypedStreamSource<T>& source = StreamAccess::source(ends_.writer);
    return source.write(std::move(item)) ? YieldAwaiter() : YieldAwaiter(source.room());
  }
  void return_void() {}
  void unhandled_exception() { error_ = std::current_exception(); }

  /// The stream ends once the frame is gone, with all that it holds.
  struct End {
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<StreamPromise> coroutine) const noexcept {
      StreamPromise& self = coroutine.promise();
      self.leave_thread_for_good();
      StreamWriter<T> writer = std::move(self.ends_.writer);
      const std::exception_ptr error = std::move(self.error_);
      coroutine.destroy();
      error == nullptr ? writer.finish() : writer.fail(error);
    }
    void await_resume() const noexcept {}
  };
  End final_suspend() const noexcept { return {}; }

 private:
  StreamPair<T> ends_;
  std::exception_ptr error_;
};

}  // namespace internal

template <class T>
auto operator co_await(Stream<T>& stream) {
  return internal::FutureAwaiter<std::optional<T>, internal::Awaited::kTaken>(stream.next_async());
}

}  // namespace sinew

/// A function that returns Stream<T> may be a generator.
template <class T, class... Arguments>
struct std::coroutine_traits<sinew::Stream<T>, Arguments...> {
  using promise_type = sinew::internal::StreamPromise<T>;
};
