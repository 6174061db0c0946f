#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

class ReceivePool;

/// Gives memory of a pool back to the system.
struct FreePages {
  std::size_t capacity = 0;
  void operator()(char* memory) const;
};

/// Memory that a pool has.
struct PooledMemory {
  std::size_t capacity() const { return bytes.get_deleter().capacity; }
  char* end() const { return bytes.get() + capacity(); }

  std::unique_ptr<char, FreePages> bytes;
  /// When it became idle.
  std::chrono::steady_clock::time_point since;
  /// Idle, and the system has been told that it may take the pages.
  bool is_lent_to_system = false;
};

/// Memory of a pool, to which it returns with the last reference. Aligned to a page, uninitialised.
class ReceiveBlock {
 public:
  /// `memory` has one element: to return it must not need any.
  ReceiveBlock(ReceivePool& pool, std::list<PooledMemory> memory)
      : pool_(pool), memory_(std::move(memory)) {}
  ~ReceiveBlock();
  ReceiveBlock(const ReceiveBlock&) = delete;
  ReceiveBlock& operator=(const ReceiveBlock&) = delete;

  char* data() const { return memory_.front().bytes.get(); }
  /// At least what was asked for.
  std::size_t capacity() const { return memory_.front().capacity(); }

  /// Makes the caller the one that may go on writing to it when it is full. False when there is one
  /// already.
  bool claim() { return !claimed_.exchange(true); }

 private:
  friend class ReceivePool;
  ReceivePool& pool_;
  std::list<PooledMemory> memory_;
  std::atomic<bool> claimed_{false};
};

/// Memory for what arrives. The system zeroes fresh pages one by one when they are touched, which
/// takes longer than to copy into warm ones: so blocks that were let go serve again. Idle blocks of
/// 2 MiB and more are merged where they are adjacent, and are cut to what is needed; a fresh one
/// comes in the place of idle ones. So messages of many sizes need as much as is in use at once,
/// and not a block for each size.
///
/// What is idle is bounded: the oldest blocks go back to the system when there is more than Bounds
/// or `max_idle_blocks` allow, with trim(), when the system has no more memory, and with
/// release_old(), which is called now and then. Before that, the system may take the pages of
/// blocks that have been idle for a while if others need them. Thread-safe.
class ReceivePool {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  /// For less a pool does not pay.
  static constexpr std::size_t kMinBytes = std::size_t{64} << 10;

  /// In bytes.
  struct Bounds {
    std::size_t max_idle = std::size_t{256} << 20;
    /// With what is in use; beyond it nothing is kept idle.
    std::size_t max_held = std::numeric_limits<std::size_t>::max();
  };
  /// For a process that may use so much memory: an eighth, at most 4 GiB, may be idle, and none
  /// once three quarters are in use.
  static Bounds bounds_for(std::uint64_t memory_bytes);

  struct Options {
    Bounds bounds;
    std::size_t max_idle_blocks = 256;
    std::chrono::nanoseconds max_idle_time = std::chrono::seconds(10);
    /// From then on the system may take an idle block's pages when memory is short.
    std::chrono::nanoseconds max_kept_time = std::chrono::seconds(1);
  };
  struct Stats {
    std::size_t used_bytes = 0;
    std::size_t idle_bytes = 0;
    /// Blocks that were handed out again.
    std::size_t reuses = 0;
  };

  /// That of the process, with the bounds for what HostLimits leaves it. Lives to the end of the
  /// process: tensors may hold blocks until then.
  static ReceivePool& of_process();

  explicit ReceivePool(Options options) : options_(options), bounds_(options.bounds) {}
  /// All blocks must have been let go.
  ~ReceivePool();
  ReceivePool(const ReceivePool&) = delete;
  ReceivePool& operator=(const ReceivePool&) = delete;

  /// Throws std::bad_alloc.
  std::shared_ptr<ReceiveBlock> allocate(std::size_t size_bytes);

  /// The block that begins with `bytes`, which the caller has claimed now; null when these are in
  /// no block of this pool, or it has been claimed before. `bytes` must be alive.
  std::shared_ptr<ReceiveBlock> claim(absl::string_view bytes);

  /// Gives blocks that have been idle for `max_idle_time` back to the system, and leaves it the
  /// pages of those that have been for `max_kept_time`.
  void release_old();
  /// Gives all that is idle back to the system.
  void trim();
  /// From now on.
  void set_bounds(Bounds bounds);
  Bounds bounds() const;
  Stats stats() const;

 private:
  friend class ReceiveBlock;
  using Memory = std::list<PooledMemory>;

  // Around fork(): a child frees tensors too, and must not find the lock held by a thread that it
  // lacks.
  static void before_fork() ABSL_NO_THREAD_SAFETY_ANALYSIS { of_process().mutex_.lock(); }
  static void after_fork() ABSL_NO_THREAD_SAFETY_ANALYSIS { of_process().mutex_.unlock(); }

  Memory take_idle(std::size_t size_bytes);
  Memory cut_idle_locked(std::size_t capacity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void replace_idle_locked(std::size_t capacity, Memory& evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void evict_surplus_locked(TimePoint now, std::size_t needed, Memory& evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void evict_locked(Memory::iterator idle, Memory& evicted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void take_back(ReceiveBlock& block);

  const Options options_;
  mutable Mutex mutex_;
  Bounds bounds_ ABSL_GUARDED_BY(mutex_);
  // Oldest first.
  Memory idle_ ABSL_GUARDED_BY(mutex_);
  // No absl::flat_hash_map: that one is broken once it could not grow.
  std::unordered_map<const char*, std::weak_ptr<ReceiveBlock>> used_ ABSL_GUARDED_BY(mutex_);
  Stats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
