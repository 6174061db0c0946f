#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

class ReceivePool;

/// Memory of a pool, to which it returns with the last reference. Aligned to a page, uninitialised.
class ReceiveBlock {
 public:
  ReceiveBlock(ReceivePool& pool, char* memory, std::size_t capacity)
      : pool_(pool), memory_(memory), capacity_(capacity) {}
  ~ReceiveBlock();
  ReceiveBlock(const ReceiveBlock&) = delete;
  ReceiveBlock& operator=(const ReceiveBlock&) = delete;

  char* data() const { return memory_; }
  /// At least what was asked for.
  std::size_t capacity() const { return capacity_; }

 private:
  friend class ReceivePool;
  ReceivePool& pool_;
  char* const memory_;
  const std::size_t capacity_;
  std::atomic<bool> claimed_{false};
};

/// Memory for what arrives. The system zeroes fresh pages one by one when they are touched, which
/// takes longer than to copy into warm ones: so blocks that were let go serve again.
///
/// What is idle is bounded: the oldest blocks go back to the system when there is more than
/// `max_idle_bytes`, after `max_idle_time` (when the pool is used again), with trim(), and when the
/// system has no more memory. Thread-safe.
class ReceivePool {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Options {
    std::size_t max_idle_bytes = std::size_t{256} << 20;
    std::chrono::nanoseconds max_idle_time = std::chrono::seconds(10);
  };
  struct Stats {
    std::size_t used_bytes = 0;
    std::size_t idle_bytes = 0;
    /// Blocks that were handed out again.
    std::size_t reuses = 0;
  };

  /// That of the process. Lives to its end: tensors may hold blocks until then.
  static ReceivePool& of_process();

  explicit ReceivePool(Options options) : options_(options) {}
  /// All blocks must have been let go.
  ~ReceivePool();
  ReceivePool(const ReceivePool&) = delete;
  ReceivePool& operator=(const ReceivePool&) = delete;

  /// Throws std::bad_alloc.
  std::shared_ptr<ReceiveBlock> allocate(std::size_t size_bytes);

  /// The block that begins with `bytes`, for a caller who may then write to it; null when these are
  /// in no block of this pool, or somebody has claimed it already. `bytes` must be alive.
  std::shared_ptr<ReceiveBlock> claim(absl::string_view bytes);

  /// Gives all that is idle back to the system.
  void trim();
  Stats stats() const;

 private:
  friend class ReceiveBlock;
  struct Idle {
    char* memory;
    std::size_t capacity;
    TimePoint since;
  };
  using IdleList = std::list<Idle>;

  char* take_idle_locked(std::size_t& capacity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  IdleList evict_locked(TimePoint not_before, std::size_t max_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void take_back(const ReceiveBlock& block);
  static void free(const IdleList& blocks);

  const Options options_;
  mutable Mutex mutex_;
  // Oldest first, and by capacity.
  IdleList idle_ ABSL_GUARDED_BY(mutex_);
  std::multimap<std::size_t, IdleList::iterator> by_capacity_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const char*, std::weak_ptr<ReceiveBlock>> used_ ABSL_GUARDED_BY(mutex_);
  Stats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
