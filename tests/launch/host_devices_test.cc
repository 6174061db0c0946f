#include "sinew/launch/run/host_devices.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace sinew::internal {
namespace {

TEST(HostDevices, ListsOfGpusEndBeforeTheFirstThatIsNone) {
  EXPECT_EQ(visible_gpus(4, std::nullopt), 4);
  EXPECT_EQ(visible_gpus(4, "2,0"), 2);
  EXPECT_EQ(visible_gpus(4, " 1 , 3 "), 2);
  EXPECT_EQ(visible_gpus(4, "0,4,1"), 1);
  EXPECT_EQ(visible_gpus(4, "0,-1,1"), 1);
  EXPECT_EQ(visible_gpus(4, ""), 0);
  EXPECT_EQ(visible_gpus(4, "NoDevFiles"), 0);
  EXPECT_EQ(visible_gpus(4, "1,1"), 0);
  EXPECT_EQ(visible_gpus(4, "GPU-8932f937,MIG-GPU-1/2/3"), 2);
  EXPECT_EQ(visible_gpus(0, "GPU-8932f937"), 0);
}

TEST(HostDevices, CountsTheCpusThatItMayRunOn) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(usable_cpus(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cpus(), 1);
  ::sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace sinew::internal
