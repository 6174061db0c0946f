#include "sinew/rpc/base/receive_pool.h"

#include <cstdlib>
#include <new>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace sinew::internal {
namespace {

constexpr std::size_t kPageBytes = 4096;

}  // namespace

ReceiveBlock::~ReceiveBlock() { pool_.take_back(*this); }

ReceivePool& ReceivePool::of_process() {
  static auto& pool = *new ReceivePool(Options());
  return pool;
}

ReceivePool::~ReceivePool() { trim(); }

std::shared_ptr<ReceiveBlock> ReceivePool::allocate(std::size_t size_bytes) {
  if (size_bytes > SIZE_MAX - kPageBytes) throw std::bad_alloc();
  std::size_t capacity = (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (capacity == 0) capacity = kPageBytes;
  char* memory = nullptr;
  {
    MutexLock lock(mutex_);
    memory = take_idle_locked(capacity);
  }
  if (memory == nullptr) memory = static_cast<char*>(std::aligned_alloc(kPageBytes, capacity));
  if (memory == nullptr) {
    trim();
    memory = static_cast<char*>(std::aligned_alloc(kPageBytes, capacity));
  }
  if (memory == nullptr) throw std::bad_alloc();
  auto block = std::make_shared<ReceiveBlock>(*this, memory, capacity);
  MutexLock lock(mutex_);
  used_[memory] = block;
  stats_.used_bytes += capacity;
  return block;
}

// The smallest idle block of `capacity` or little more, which is set to what it has.
char* ReceivePool::take_idle_locked(std::size_t& capacity) {
  const auto found = by_capacity_.lower_bound(capacity);
  if (found == by_capacity_.end() || found->first - capacity > capacity / 4) return nullptr;
  const Idle idle = *found->second;
  idle_.erase(found->second);
  by_capacity_.erase(found);
  stats_.idle_bytes -= idle.capacity;
  ++stats_.reuses;
  capacity = idle.capacity;
  ASAN_UNPOISON_MEMORY_REGION(idle.memory, idle.capacity);
  return idle.memory;
}

std::shared_ptr<ReceiveBlock> ReceivePool::claim(absl::string_view bytes) {
  // Before the lock: were it the last reference, its end would take the lock.
  std::shared_ptr<ReceiveBlock> block;
  MutexLock lock(mutex_);
  const auto found = used_.find(bytes.data());
  if (found == used_.end()) return nullptr;
  block = found->second.lock();
  if (block == nullptr || bytes.size() > block->capacity_ || block->claimed_.exchange(true)) {
    return nullptr;
  }
  return block;
}

void ReceivePool::take_back(const ReceiveBlock& block) {
  const TimePoint now = std::chrono::steady_clock::now();
  IdleList evicted;
  {
    MutexLock lock(mutex_);
    used_.erase(block.memory_);
    stats_.used_bytes -= block.capacity_;
    stats_.idle_bytes += block.capacity_;
    ASAN_POISON_MEMORY_REGION(block.memory_, block.capacity_);
    idle_.push_back({block.memory_, block.capacity_, now});
    by_capacity_.emplace(block.capacity_, std::prev(idle_.end()));
    evicted = evict_locked(now - options_.max_idle_time, options_.max_idle_bytes);
  }
  free(evicted);
}

ReceivePool::IdleList ReceivePool::evict_locked(TimePoint not_before, std::size_t max_bytes) {
  IdleList evicted;
  while (!idle_.empty() && (stats_.idle_bytes > max_bytes || idle_.front().since < not_before)) {
    const auto oldest = idle_.begin();
    stats_.idle_bytes -= oldest->capacity;
    auto [at, end] = by_capacity_.equal_range(oldest->capacity);
    while (at->second != oldest) ++at;
    by_capacity_.erase(at);
    evicted.splice(evicted.end(), idle_, oldest);
  }
  return evicted;
}

void ReceivePool::trim() {
  IdleList evicted;
  {
    MutexLock lock(mutex_);
    evicted = evict_locked(TimePoint::max(), 0);
  }
  free(evicted);
}

void ReceivePool::free(const IdleList& blocks) {
  for (const Idle& idle : blocks) {
    ASAN_UNPOISON_MEMORY_REGION(idle.memory, idle.capacity);
    std::free(idle.memory);
  }
}

ReceivePool::Stats ReceivePool::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

}  // namespace sinew::internal
