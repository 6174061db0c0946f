#include "sinew/rpc/base/warm_heap.h"

#include <malloc.h>

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnMalloc = false;
#else
constexpr bool kOwnMalloc = true;
#endif

// Whether malloc asks the system for a block of this size alone, to give it back with free().
bool comes_from_the_system(std::size_t size_bytes) {
  const std::size_t before = mallinfo2().hblks;
  const std::unique_ptr<void, void (*)(void*)> block(std::malloc(size_bytes), &std::free);
  return mallinfo2().hblks > before;
}

// Each in a process of its own: the thresholds are the process's.

TEST(WarmHeapDeathTest, LargeBlocksComeFromTheHeap) {
  if (!kOwnMalloc) GTEST_SKIP() << "the sanitizer has a malloc of its own";
  EXPECT_EXIT(
      {
        const bool cold = comes_from_the_system(std::size_t{1} << 20);
        keep_heap_warm();
        const bool warm = !comes_from_the_system(std::size_t{15} << 20);
        const bool beyond = comes_from_the_system(std::size_t{20} << 20);
        std::exit(cold && warm && beyond ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(WarmHeapDeathTest, WhoHasSetTheThresholdKeepsIt) {
  if (!kOwnMalloc) GTEST_SKIP() << "the sanitizer has a malloc of its own";
  EXPECT_EXIT(
      {
        mallopt(M_MMAP_THRESHOLD, 256 << 10);
        keep_heap_warm();
        std::exit(comes_from_the_system(std::size_t{1} << 20) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sinew::internal
