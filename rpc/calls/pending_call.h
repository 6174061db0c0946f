#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "c10/core/Stream.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/cancellation.h"
#include "sinew/rpc/transport/frame.h"
#include "sinew/rpc/wire/codec.h"

namespace sinew::internal {

/// A reply as it came in. Movable; reading it decodes the value.
class ReceivedReply {
 public:
  struct Data;
  explicit ReceivedReply(std::unique_ptr<Data> data);
  ReceivedReply(ReceivedReply&&) noexcept;
  ReceivedReply& operator=(ReceivedReply&&) noexcept;
  ~ReceivedReply();

  /// Throws the RpcError that the reply holds, if it holds one.
  void throw_if_error() const;
  ValueReader value();
  /// Throws what reading the value threw, with the call that it belongs to.
  [[noreturn]] void throw_unreadable(const std::exception_ptr& error) const;
  /// True when references arrived with it, whose owner must be told of them even if the value is
  /// never read, or tensors that the sender keeps until they are taken.
  bool must_be_read_now() const;
  /// Reads on the executor, since codecs may be user code: `read` runs there; then, once everything
  /// that reading has found to wait for is complete, `done` with null or with the error of either.
  static void read_soon(std::shared_ptr<ReceivedReply> reply,
                        absl::AnyInvocable<void(ReceivedReply&) &&> read,
                        absl::AnyInvocable<void(std::exception_ptr) &&> done);
  /// The second half of it, for those who have read the value by themselves: any thread.
  static void when_arrived(const std::shared_ptr<ReceivedReply>& reply,
                           absl::AnyInvocable<void(std::exception_ptr) &&> done);

 private:
  std::unique_ptr<Data> data_;
};

/// The caller's half of one call: what happens when it ends. A CallLink owns it while the call is
/// under way. Exactly one of on_reply and on_error runs, once, on any thread, with no lock held.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  virtual void on_reply(ReceivedReply reply) = 0;
  virtual void on_error(std::exception_ptr error) = 0;

  // Filled in by CallBuilder, read by the link.
  std::string method;
  Clock::TimePoint started;
  /// The call that was being served when it was made: who has made that, and its number there.
  Incarnation parent_caller;
  std::uint64_t parent_id = 0;
  Clock::TimePoint deadline = Clock::TimePoint::max();
  /// Its caller waits for it, so it may wait for room too; otherwise it fails where there is none.
  bool waits_for_room = false;
  /// Each of them cancels the call; only such as can.
  std::vector<CancellationToken> cancellations;
  /// Asked when the call ends with an error, if set: what to report in its place, or null.
  std::function<std::exception_ptr()> explain;
  /// On which the caller works with the devices that results may arrive on. A reply that is read
  /// for it by another thread is read on them.
  std::vector<c10::Stream> streams;
  /// Runs once the carrying message is done with; see MessageRoute::carries_reference.
  std::vector<OnCarrierEnd> on_end;
};

/// Completes a Future<R>. The value is decoded by its first reader.
template <class R>
class TypedPendingCall final : public PendingCall {
 public:
  /// Callbacks of the future run on `runner`.
  explicit TypedPendingCall(std::shared_ptr<TaskRunner> runner)
      : promise_(FutureAccess::make_promise<R>(std::move(runner))) {}
  Future<R> future() const { return promise_.future(); }

  void on_reply(ReceivedReply reply) override {
    if (reply.must_be_read_now()) {
      auto value = std::make_shared<std::optional<Stored<R>>>();
      ReceivedReply::read_soon(
          std::make_shared<ReceivedReply>(std::move(reply)),
          [value](ReceivedReply& received) { value->emplace(read(received)); },
          [value, promise = promise_](std::exception_ptr error) {
            error == nullptr ? promise.try_set_value(*std::move(*value))
                             : promise.try_set_error(std::move(error));
          });
      return;
    }
    FutureAccess::complete_lazily<R>(promise_, [reply = std::move(reply)]() mutable -> R {
      if constexpr (std::is_void_v<R>) {
        read(reply);
      } else {
        return read(reply);
      }
    });
  }
  void on_error(std::exception_ptr error) override { promise_.try_set_error(std::move(error)); }

 private:
  static Stored<R> read(ReceivedReply& reply) {
    reply.throw_if_error();
    if constexpr (std::is_void_v<R>) {
      return {};
    } else {
      try {
        return Codec<R>::decode(reply.value());
      } catch (...) {
        reply.throw_unreadable(std::current_exception());
      }
    }
  }

  Promise<R> promise_;
};

}  // namespace sinew::internal
