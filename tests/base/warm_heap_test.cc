#include "sinew/rpc/base/warm_heap.h"

#include <malloc.h>

#include <cstddef>
#include <cstdlib>

#include "gtest/gtest.h"
#include "sinew/tests/support/system_blocks.h"

namespace sinew::internal {
namespace {

using sinew::testing::comes_from_the_system;
using sinew::testing::kMallocIsGlibcs;

// Each in a process of its own: the thresholds are the process's.

TEST(WarmHeapDeathTest, LargeBlocksComeFromTheHeap) {
  if (!kMallocIsGlibcs) GTEST_SKIP() << "the sanitizer has a malloc of its own";
  EXPECT_EXIT(
      {
        const bool cold = comes_from_the_system(std::size_t{1} << 20);
        keep_heap_warm();
        const bool warm = !comes_from_the_system(std::size_t{15} << 20);
        const bool beyond = comes_from_the_system(std::size_t{20} << 20);
        std::exit(cold && warm && beyond ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(WarmHeapDeathTest, WhoHasSetTheThresholdKeepsIt) {
  if (!kMallocIsGlibcs) GTEST_SKIP() << "the sanitizer has a malloc of its own";
  EXPECT_EXIT(
      {
        mallopt(M_MMAP_THRESHOLD, 256 << 10);
        keep_heap_warm();
        std::exit(comes_from_the_system(std::size_t{1} << 20) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sinew::internal
