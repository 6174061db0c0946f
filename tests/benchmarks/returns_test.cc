#include "sinew/benchmarks/rollout/returns.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sinew::bench::rollout {
namespace {

using testing::DoubleEq;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(DiscountedReturns, WeighLaterRewardsLess) {
  EXPECT_THAT(discounted_returns({1, 2, 4}, 0.5), ElementsAre(3.0, 4.0, 4.0));
  EXPECT_THAT(discounted_returns({1, 1, 1}, 1.0), ElementsAre(3.0, 2.0, 1.0));
  EXPECT_THAT(discounted_returns({1, 2, 4}, 0.0), ElementsAre(1.0, 2.0, 4.0));
  EXPECT_THAT(discounted_returns({}, 0.9), IsEmpty());
}

TEST(Normalized, HasMeanZeroAndUnitDeviation) {
  const auto values = normalized({2, 4, 6});  // mean 4, unbiased deviation 2
  ASSERT_EQ(values.size(), 3U);
  EXPECT_NEAR(values[0], -1, 1e-6);
  EXPECT_NEAR(values[1], 0, 1e-6);
  EXPECT_NEAR(values[2], 1, 1e-6);
}

TEST(Normalized, MakesZerosOfWhatCannotBeScaled) {
  EXPECT_THAT(normalized({}), IsEmpty());
  EXPECT_THAT(normalized({5}), ElementsAre(DoubleEq(0)));
  EXPECT_THAT(normalized({3, 3, 3}), Each(DoubleEq(0)));
}

}  // namespace
}  // namespace sinew::bench::rollout
