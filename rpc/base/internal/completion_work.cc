#include "sinew/rpc/base/internal/completion_work.h"

#include <utility>

#include "absl/hash/hash.h"

namespace sinew::internal {

CompletionWork& CompletionWork::of_process() {
  // Never destroyed: futures may outlive main().
  static CompletionWork* const work = new CompletionWork();
  return *work;
}

std::size_t CompletionWork::shard_of(const FutureCore& future) {
  return absl::HashOf(&future) % kShards;
}

void CompletionWork::note(const FutureCore& future, QueuedOn which) {
  std::shared_ptr<const QueuedWork> work = queued_work(which);
  if (work == nullptr) return;
  Shard& shard = shards_[shard_of(future)];
  MutexLock lock(shard.mutex);
  // A thread that sees that the future is complete sees this too.
  size_.fetch_add(1, std::memory_order_relaxed);
  shard.work.insert_or_assign(&future, std::move(work));
}

void CompletionWork::precede_reader(const FutureCore& future) const {
  if (size_.load(std::memory_order_relaxed) == 0) return;
  std::shared_ptr<const QueuedWork> work;
  {
    const Shard& shard = shards_[shard_of(future)];
    MutexLock lock(shard.mutex);
    const auto found = shard.work.find(&future);
    if (found == shard.work.end()) return;
    work = found->second;
  }
  work->precede_this_thread();
}

void CompletionWork::forget(const FutureCore& future) {
  if (size_.load(std::memory_order_relaxed) == 0) return;
  // Ends after the lock: events of devices are given back.
  std::shared_ptr<const QueuedWork> work;
  Shard& shard = shards_[shard_of(future)];
  MutexLock lock(shard.mutex);
  const auto found = shard.work.find(&future);
  if (found == shard.work.end()) return;
  work = std::move(found->second);
  shard.work.erase(found);
  size_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace sinew::internal
