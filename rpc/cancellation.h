#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"

namespace sinew {

namespace internal {
class CancellationState;
}

/// Tells whether work is still wanted. Copies share one state. A default-constructed token is never
/// cancelled. Thread-safe.
class CancellationToken {
 public:
  CancellationToken() = default;
  bool is_cancelled() const;
  bool can_be_cancelled() const { return state_ != nullptr; }

  /// Runs `callback` once when the source is cancelled, on the cancelling thread; at once when it
  /// has been already. Returns a number for `forget`. The callback must be short.
  std::uint64_t notify(absl::AnyInvocable<void() &&> callback) const;
  /// Drops a callback that has not begun. Callbacks may be dropped late; it is no error.
  void forget(std::uint64_t number) const;

 private:
  friend class CancellationSource;
  explicit CancellationToken(std::shared_ptr<internal::CancellationState> state)
      : state_(std::move(state)) {}
  std::shared_ptr<internal::CancellationState> state_;
};

/// Cancels calls: those made with its token fail with kCancelled, and their callees are told.
/// Thread-safe.
///
///     sinew::CancellationSource source;
///     sinew::CallOptions options;
///     options.cancellation = source.token();
///     auto answer = peer.with(options).async<&app::search>(query);
///     source.cancel();
class CancellationSource {
 public:
  CancellationSource();
  CancellationToken token() const { return token_; }
  /// Idempotent.
  void cancel() const;

 private:
  CancellationToken token_;
};

namespace internal {

/// A source that is made when its token is asked for, which is rare. Thread-safe.
class LateCancellation {
 public:
  LateCancellation() = default;
  ~LateCancellation();
  LateCancellation(const LateCancellation&) = delete;
  LateCancellation& operator=(const LateCancellation&) = delete;
  CancellationToken token() const;
  bool is_cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  /// Idempotent.
  void cancel();

 private:
  std::atomic<bool> cancelled_{false};
  mutable std::atomic<const CancellationSource*> source_{nullptr};
};

}  // namespace internal
}  // namespace sinew
