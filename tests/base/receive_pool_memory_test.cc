// What becomes of the receive pool when there is no memory. A program of its own, since it replaces
// operator new.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "sinew/rpc/base/receive_pool.h"

namespace {

// Of the calling thread: how many allocations succeed still.
thread_local std::size_t allocations_left = std::numeric_limits<std::size_t>::max();

void* allocate(std::size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  --allocations_left;
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace sinew::internal {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// True if it succeeded with so many allocations.
bool allocates(ReceivePool& pool, std::size_t size, std::size_t allocations) {
  allocations_left = allocations;
  bool succeeded = true;
  try {
    const auto block = pool.allocate(size);
    // It goes without needing memory.
    allocations_left = 0;
  } catch (const std::bad_alloc&) {
    succeeded = false;
  }
  allocations_left = std::numeric_limits<std::size_t>::max();
  return succeeded;
}

/// Allocates `size` with ever more memory for it until that succeeds; a block of `before` lies
/// idle.
void fail_wherever_it_can(std::size_t size, std::size_t before) {
  std::size_t allocations = 0;
  bool succeeded = false;
  while (!succeeded) {
    ReceivePool pool({});
    // Others are in use, so that the table may have to grow.
    std::vector<std::shared_ptr<ReceiveBlock>> others;
    for (int i = 0; i < 7; ++i) others.push_back(pool.allocate(2 * kMiB));
    const std::size_t used = pool.stats().used_bytes;
    if (before > 0) pool.allocate(before);
    succeeded = allocates(pool, size, allocations++);
    EXPECT_EQ(pool.stats().used_bytes, used) << allocations;
    const auto block = pool.allocate(size);
    std::memset(block->data(), 1, block->capacity());
    EXPECT_TRUE(pool.claim({block->data(), size}) == block);
    ASSERT_LT(allocations, 100U);
  }
  EXPECT_GT(allocations, 2U) << "no allocation failed";
}

TEST(ReceivePoolMemoryTest, WhereverItFailsNothingIsLost) {
  fail_wherever_it_can(kMiB, 0);
  fail_wherever_it_can(kMiB, kMiB);
  fail_wherever_it_can(4 * kMiB, 64 * kMiB);
}

}  // namespace
}  // namespace sinew::internal
