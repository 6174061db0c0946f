// Alone in its program: how malloc behaves is the process's.

#include <cstddef>

#include "gtest/gtest.h"
#include "sinew/tests/support/system_blocks.h"
#include "sinew/tests/transport/grpc_fixture.h"

namespace sinew::internal {
namespace {

TEST(GrpcWarmHeap, LargeBlocksComeFromTheHeapOnceATransportHasStarted) {
  if (!sinew::testing::kMallocIsGlibcs) GTEST_SKIP() << "the sanitizer has a malloc of its own";
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  ASSERT_TRUE(sinew::testing::comes_from_the_system(kBytes / 8)) << "it was so before";
  const Worker worker;
  EXPECT_FALSE(sinew::testing::comes_from_the_system(kBytes));
}

}  // namespace
}  // namespace sinew::internal
