#include "sinew/rpc/base/receive_pool.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
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

// Where memory is in pages of this size the system has much less to do, for who writes to them
// first and for who copies from one process to another.
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// Of what is that large, the last page may be a huge one too.
constexpr std::size_t kHugeBytes = 8 * kHugePageBytes;

// No more than a quarter over: the pool takes a block for a request that is so much smaller.
std::size_t capacity_for(std::size_t size_bytes) {
  const std::size_t page = size_bytes >= kHugeBytes ? kHugePageBytes : kPageBytes;
  if (size_bytes > SIZE_MAX - page) throw std::bad_alloc();
  return std::max(size_bytes + page - 1, page) / page * page;
}

char* fresh_pages(std::size_t capacity) {
  if (capacity < kHugePageBytes) {
    return static_cast<char*>(std::aligned_alloc(kPageBytes, capacity));
  }
  void* memory = nullptr;
  // Unlike aligned_alloc(), it takes sizes that are no multiple of the alignment.
  if (::posix_memalign(&memory, kHugePageBytes, capacity) != 0) return nullptr;
  // Advice: small pages do too.
  (void)::madvise(memory, capacity, MADV_HUGEPAGE);
  return static_cast<char*>(memory);
}

ReceivePool::Options options_of_process() {
  ReceivePool::Options options;
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) {
    options.max_idle_bytes =
        std::clamp(static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes) / 8,
                   options.max_idle_bytes, std::size_t{4} << 30);
  }
  return options;
}

}  // namespace

ReceiveBlock::~ReceiveBlock() { pool_.take_back(*this); }

ReceivePool& ReceivePool::of_process() {
  static auto& pool = []() -> ReceivePool& {
    auto& made = *new ReceivePool(options_of_process());
    ::pthread_atfork(&before_fork, &after_fork, &after_fork);
    return made;
  }();
  return pool;
}

ReceivePool::~ReceivePool() { trim(); }

std::shared_ptr<ReceiveBlock> ReceivePool::allocate(std::size_t size_bytes) {
  const std::size_t capacity = capacity_for(size_bytes);
  Memory memory = take_idle(size_bytes);
  if (memory.empty()) {
    PooledMemory& made = memory.emplace_back();
    made.capacity = capacity;
    made.bytes.reset(fresh_pages(made.capacity));
    if (made.bytes == nullptr) {
      trim();
      made.bytes.reset(fresh_pages(made.capacity));
    }
    if (made.bytes == nullptr) throw std::bad_alloc();
  }
  auto block = std::make_shared<ReceiveBlock>(*this, std::move(memory));
  MutexLock lock(mutex_);
  // In this order: if there is no memory for the entry, the end of the block takes it back.
  stats_.used_bytes += block->capacity();
  used_[block->data()] = block;
  return block;
}

// An idle block of that size or little more: the one that was used last is likely to be in a cache.
ReceivePool::Memory ReceivePool::take_idle(std::size_t size_bytes) {
  const TimePoint now = std::chrono::steady_clock::now();
  Memory evicted;
  Memory taken;
  MutexLock lock(mutex_);
  evicted = evict_locked(now - options_.max_idle_time, options_.max_idle_bytes);
  for (auto at = idle_.end(); at != idle_.begin();) {
    --at;
    if (at->capacity < size_bytes || at->capacity - size_bytes > size_bytes / 4 + kPageBytes) {
      continue;
    }
    taken.splice(taken.end(), idle_, at);
    stats_.idle_bytes -= taken.front().capacity;
    ++stats_.reuses;
    taken.front().is_lent_to_system = false;
    ASAN_UNPOISON_MEMORY_REGION(taken.front().bytes.get(), taken.front().capacity);
    break;
  }
  return taken;
}

std::shared_ptr<ReceiveBlock> ReceivePool::claim(absl::string_view bytes) {
  // Before the lock: were it the last reference, its end would take the lock.
  std::shared_ptr<ReceiveBlock> block;
  MutexLock lock(mutex_);
  const auto found = used_.find(bytes.data());
  if (found == used_.end()) return nullptr;
  block = found->second.lock();
  if (block == nullptr || bytes.size() > block->capacity() || !block->claim()) return nullptr;
  return block;
}

void ReceivePool::take_back(ReceiveBlock& block) {
  const TimePoint now = std::chrono::steady_clock::now();
  Memory evicted;
  MutexLock lock(mutex_);
  PooledMemory& memory = block.memory_.front();
  used_.erase(memory.bytes.get());
  stats_.used_bytes -= memory.capacity;
  stats_.idle_bytes += memory.capacity;
  memory.since = now;
  ASAN_POISON_MEMORY_REGION(memory.bytes.get(), memory.capacity);
  idle_.splice(idle_.end(), block.memory_);
  evicted = evict_locked(now - options_.max_idle_time, options_.max_idle_bytes);
}

// The caller frees them without the lock.
ReceivePool::Memory ReceivePool::evict_locked(TimePoint not_before, std::size_t max_bytes) {
  Memory evicted;
  while (!idle_.empty() &&
         (stats_.idle_bytes > max_bytes || idle_.size() > options_.max_idle_blocks ||
          idle_.front().since < not_before)) {
    stats_.idle_bytes -= idle_.front().capacity;
    evicted.splice(evicted.end(), idle_, idle_.begin());
  }
  return evicted;
}

void ReceivePool::release_old() {
  const TimePoint now = std::chrono::steady_clock::now();
  Memory evicted;
  MutexLock lock(mutex_);
  evicted = evict_locked(now - options_.max_idle_time, options_.max_idle_bytes);
  for (PooledMemory& memory : idle_) {
    if (memory.since > now - options_.max_kept_time) break;
    // What stands in small blocks is the allocator's to give back.
    if (memory.capacity < kHugePageBytes || memory.is_lent_to_system) continue;
    // Writing to a page takes it back. Whole pages of the block only, or the system refuses.
    (void)::madvise(memory.bytes.get(), memory.capacity, MADV_FREE);
    memory.is_lent_to_system = true;
  }
}

void ReceivePool::trim() {
  Memory evicted;
  MutexLock lock(mutex_);
  evicted = evict_locked(TimePoint::max(), 0);
}

ReceivePool::Stats ReceivePool::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

}  // namespace sinew::internal
