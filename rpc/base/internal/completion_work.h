#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/internal/queued_work.h"

namespace sinew::internal {

class FutureCore;

/// What the threads that completed futures had queued on devices by then. A reader of the value
/// goes on after it. Kept apart from the futures, since few have any: in processes without devices
/// the cost is one read of an atomic. Thread-safe.
class CompletionWork {
 public:
  static CompletionWork& of_process();

  /// By the thread that completes `future`, before others can see that.
  void note(const FutureCore& future, QueuedOn which);
  /// By a thread that reads the value of `future`.
  void precede_reader(const FutureCore& future) const;
  /// By the future that ends.
  void forget(const FutureCore& future);

 private:
  struct Shard {
    mutable Mutex mutex;
    absl::flat_hash_map<const FutureCore*, std::shared_ptr<const QueuedWork>> work
        ABSL_GUARDED_BY(mutex);
  };
  static constexpr std::size_t kShards = 16;

  static std::size_t shard_of(const FutureCore& future);

  std::array<Shard, kShards> shards_;
  // Of all shards together.
  std::atomic<std::size_t> size_{0};
};

}  // namespace sinew::internal
