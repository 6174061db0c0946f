#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "sinew/rpc/base/credit.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// First attempts to reach other workers, a few at a time. All workers stand in a ring, by their
/// incarnations, and each turns to those that follow it first: where all start to call each other
/// at once, the others' connections mostly arrive before their turn comes, and no attempt is made.
/// So each two make one connection, rather than two of which one is for nothing. Thread-safe. Held
/// by shared_ptr.
class DialTurns : public std::enable_shared_from_this<DialTurns> {
 public:
  static constexpr std::size_t kAtOnce = 8;
  /// A turn ends after so long, since who does not answer must not hold up the others. The attempt
  /// itself goes on.
  static constexpr std::chrono::milliseconds kLongest{500};

  /// Both are used until close().
  DialTurns(Incarnation self, Executor& executor, Timers& timers)
      : self_(self), executor_(executor), timers_(timers) {}

  /// Runs on the executor, with the turn, which ends when that goes.
  using Begin = absl::AnyInvocable<void(Credit turn) &&>;
  void enter(Incarnation peer, Begin begin);
  /// No turn begins any more.
  void close();

 private:
  std::uint64_t take_turn_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void post(std::uint64_t turn, Begin begin);
  void leave(std::uint64_t turn);

  const Incarnation self_;
  Executor& executor_;
  Timers& timers_;
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t last_turn_ ABSL_GUARDED_BY(mutex_) = 0;
  // With the timer that ends each.
  absl::flat_hash_map<std::uint64_t, Timers::TimerId> running_ ABSL_GUARDED_BY(mutex_);
  // By how far they are along the ring.
  absl::btree_multimap<std::uint64_t, Begin> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
