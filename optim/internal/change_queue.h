#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "sinew/optim/internal/standby_messages.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// Puts the changes that come to a standby, in any order, into that of their numbers. Thread-safe.
class ChangeQueue {
 public:
  /// Begins the work on a change. What was begun before it is done before it.
  using Begin = std::function<Future<FollowOutcome>()>;

  /// Begins a stream, which is not 0, and ends the one before.
  void begin(std::uint64_t stream);
  /// Ends it: what waits fails with kAborted, as does what comes later.
  void end(std::uint64_t stream);
  /// Runs `begin` when those of all changes of the stream with smaller numbers have been, on this
  /// thread or on that of the last one of these. Throws RpcError kAborted for another stream, and
  /// kInvalidArgument for a number that was added before, or is far ahead of all that were.
  Future<FollowOutcome> add(const ChangeId& id, Begin begin);
  /// How many wait for others.
  std::size_t waiting() const;

 private:
  struct Waiting {
    Begin begin;
    Promise<FollowOutcome> promise;
  };
  using Changes = std::map<std::uint64_t, Waiting>;

  static void fail(const Changes& changes);
  void begin_those_in_turn();

  mutable Mutex mutex_;
  std::uint64_t stream_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  Changes waiting_ ABSL_GUARDED_BY(mutex_);
  bool is_beginning_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sinew::internal
