#include "sinew/rpc/base/receive_pool.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include "sinew/rpc/base/host_limits.h"

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

// What is smaller is malloc's: the system bounds how many mappings a process has.
bool is_mapped(std::size_t capacity) { return capacity >= kHugePageBytes; }

std::size_t capacity_for(std::size_t size_bytes) {
  const std::size_t page = is_mapped(size_bytes) ? kHugePageBytes : kPageBytes;
  if (size_bytes > SIZE_MAX - page) throw std::bad_alloc();
  return std::max(size_bytes + page - 1, page) / page * page;
}

// Null if the system has none.
char* fresh_mapping(std::size_t size_bytes, std::size_t capacity) {
  const std::size_t surplus = kHugePageBytes - kPageBytes;
  if (capacity > SIZE_MAX - surplus) return nullptr;
  void* const mapped = ::mmap(nullptr, capacity + surplus, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(mapped) % kHugePageBytes;
  char* const memory = static_cast<char*>(mapped) + before;
  if (before > 0) ::munmap(mapped, before);
  if (before < surplus) ::munmap(memory + capacity, surplus - before);
  // Advice: small pages do too.
  (void)::madvise(
      memory, size_bytes >= kHugeBytes ? capacity : size_bytes / kHugePageBytes * kHugePageBytes,
      MADV_HUGEPAGE);
  return memory;
}

PooledMemory fresh_memory(std::size_t size_bytes, std::size_t capacity) {
  char* const memory = is_mapped(capacity)
                           ? fresh_mapping(size_bytes, capacity)
                           : static_cast<char*>(std::aligned_alloc(kPageBytes, capacity));
  PooledMemory fresh;
  fresh.bytes = {memory, FreePages{capacity}};
  return fresh;
}

ReceivePool::Options options_of_process() {
  ReceivePool::Options options;
  const HostLimits limits = read_host_limits();
  if (limits.memory.has_value()) options.bounds = ReceivePool::bounds_for(limits.memory->most);
  return options;
}

}  // namespace

void FreePages::operator()(char* memory) const {
  ASAN_UNPOISON_MEMORY_REGION(memory, capacity);
  if (!is_mapped(capacity)) return std::free(memory);
  // To give back a part may need one mapping more than there may be.
  if (::munmap(memory, capacity) != 0) (void)::madvise(memory, capacity, MADV_DONTNEED);
}

ReceiveBlock::~ReceiveBlock() { pool_.take_back(*this); }

ReceivePool& ReceivePool::of_process() {
  static auto& pool = []() -> ReceivePool& {
    auto& made = *new ReceivePool(options_of_process());
    ::pthread_atfork(&before_fork, &after_fork, &after_fork);
    return made;
  }();
  return pool;
}

ReceivePool::Bounds ReceivePool::bounds_for(std::uint64_t memory_bytes) {
  Bounds bounds;
  bounds.max_idle = std::min<std::uint64_t>(memory_bytes / 8, std::uint64_t{4} << 30);
  bounds.max_held = memory_bytes / 4 * 3;
  return bounds;
}

ReceivePool::~ReceivePool() { trim(); }

std::shared_ptr<ReceiveBlock> ReceivePool::allocate(std::size_t size_bytes) {
  Memory memory = take_idle(size_bytes);
  if (memory.empty()) {
    const std::size_t capacity = capacity_for(size_bytes);
    PooledMemory& made = memory.emplace_back(fresh_memory(size_bytes, capacity));
    if (made.bytes == nullptr) {
      trim();
      made = fresh_memory(size_bytes, capacity);
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
// Otherwise a part of what lies idle. Empty if there must be a fresh one, for which there is room
// then.
ReceivePool::Memory ReceivePool::take_idle(std::size_t size_bytes) {
  const TimePoint now = std::chrono::steady_clock::now();
  const std::size_t capacity = capacity_for(size_bytes);
  Memory evicted;
  Memory taken;
  MutexLock lock(mutex_);
  evict_surplus_locked(now, 0, evicted);
  for (auto at = idle_.end(); at != idle_.begin();) {
    --at;
    if (at->capacity() < capacity || at->capacity() - capacity > capacity / 4) continue;
    taken.splice(taken.end(), idle_, at);
    stats_.idle_bytes -= taken.front().capacity();
    break;
  }
  if (taken.empty() && is_mapped(capacity)) taken = cut_idle_locked(capacity);
  if (taken.empty()) {
    if (is_mapped(capacity)) replace_idle_locked(capacity, evicted);
    evict_surplus_locked(now, capacity, evicted);
    return taken;
  }
  ++stats_.reuses;
  taken.front().is_lent_to_system = false;
  ASAN_UNPOISON_MEMORY_REGION(taken.front().bytes.get(), taken.front().capacity());
  return taken;
}

// From the smallest row of idle blocks that suffices. May throw std::bad_alloc, and nothing has
// changed then.
ReceivePool::Memory ReceivePool::cut_idle_locked(std::size_t capacity) {
  Memory taken;
  std::vector<Memory::iterator> blocks;
  for (auto at = idle_.begin(); at != idle_.end(); ++at) {
    if (is_mapped(at->capacity())) blocks.push_back(at);
  }
  std::sort(blocks.begin(), blocks.end(),
            [](auto a, auto b) { return std::less<>()(a->bytes.get(), b->bytes.get()); });
  auto best = blocks.end();
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (auto first = blocks.begin(); first != blocks.end();) {
    std::size_t row = (*first)->capacity();
    auto next = std::next(first);
    for (; next != blocks.end() && (*std::prev(next))->end() == (*next)->bytes.get(); ++next) {
      row += (*next)->capacity();
    }
    if (row >= capacity && row < least) {
      best = first;
      least = row;
    }
    first = next;
  }
  if (best == blocks.end()) return taken;
  taken.emplace_back();
  char* const begin = (*best)->bytes.get();
  for (std::size_t missing = capacity; missing > 0; ++best) {
    PooledMemory& block = **best;
    const std::size_t cut = std::min(missing, block.capacity());
    const std::size_t rest = block.capacity() - cut;
    char* const after = block.bytes.release() + cut;
    missing -= cut;
    if (rest == 0) {
      idle_.erase(*best);
    } else {
      block.bytes = {after, FreePages{rest}};
    }
  }
  taken.front().bytes = {begin, FreePages{capacity}};
  stats_.idle_bytes -= capacity;
  return taken;
}

// Or a block would be kept for each size: what is larger could have been cut.
void ReceivePool::replace_idle_locked(std::size_t capacity, Memory& evicted) {
  for (auto at = idle_.begin(); at != idle_.end() && capacity > 0;) {
    const auto oldest = at++;
    if (!is_mapped(oldest->capacity()) || oldest->capacity() > capacity) continue;
    capacity -= oldest->capacity();
    evict_locked(oldest, evicted);
  }
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
  stats_.used_bytes -= memory.capacity();
  stats_.idle_bytes += memory.capacity();
  memory.since = now;
  ASAN_POISON_MEMORY_REGION(memory.bytes.get(), memory.capacity());
  idle_.splice(idle_.end(), block.memory_);
  evict_surplus_locked(now, 0, evicted);
}

// So that what is idle is within the bounds if `needed` more bytes are used. Who calls this lets
// `evicted` go without the lock.
void ReceivePool::evict_surplus_locked(TimePoint now, std::size_t needed, Memory& evicted) {
  const std::size_t used = stats_.used_bytes + needed;
  const std::size_t left = bounds_.max_held > used ? bounds_.max_held - used : 0;
  const std::size_t most = std::min(bounds_.max_idle, left);
  const TimePoint not_before = now - options_.max_idle_time;
  while (!idle_.empty() && (stats_.idle_bytes > most || idle_.size() > options_.max_idle_blocks ||
                            idle_.front().since < not_before)) {
    evict_locked(idle_.begin(), evicted);
  }
}

void ReceivePool::evict_locked(Memory::iterator idle, Memory& evicted) {
  stats_.idle_bytes -= idle->capacity();
  evicted.splice(evicted.end(), idle_, idle);
}

void ReceivePool::release_old() {
  const TimePoint now = std::chrono::steady_clock::now();
  Memory evicted;
  MutexLock lock(mutex_);
  evict_surplus_locked(now, 0, evicted);
  for (PooledMemory& memory : idle_) {
    if (memory.since > now - options_.max_kept_time) break;
    // What stands in small blocks is the allocator's to give back.
    if (!is_mapped(memory.capacity()) || memory.is_lent_to_system) continue;
    // Writing to a page takes it back. Whole pages of the block only, or the system refuses.
    (void)::madvise(memory.bytes.get(), memory.capacity(), MADV_FREE);
    memory.is_lent_to_system = true;
  }
}

void ReceivePool::trim() {
  Memory evicted;
  MutexLock lock(mutex_);
  while (!idle_.empty()) evict_locked(idle_.begin(), evicted);
}

void ReceivePool::set_bounds(Bounds bounds) {
  MutexLock lock(mutex_);
  bounds_ = bounds;
}

ReceivePool::Bounds ReceivePool::bounds() const {
  MutexLock lock(mutex_);
  return bounds_;
}

ReceivePool::Stats ReceivePool::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

}  // namespace sinew::internal
