// A library that was built without UCX.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/planes/ucx/ucx_plane.h"

namespace sinew::internal {
namespace {

TEST(UcxAbsent, SaysSo) {
  const auto plane = make_ucx_plane({});
  EXPECT_TRUE(absl::IsUnimplemented(plane.status()));
  EXPECT_THAT(plane.status().message(), ::testing::HasSubstr("SINEW_WITH_UCX"));
}

}  // namespace
}  // namespace sinew::internal
