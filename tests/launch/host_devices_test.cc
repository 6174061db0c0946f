#include "sinew/launch/run/host_devices.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace sinew::internal
