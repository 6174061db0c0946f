#include "sinew/rpc/wire/tensor_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace sinew::internal {
namespace {

using ::testing::ElementsAre;
using Dims = std::vector<std::int64_t>;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(TensorLayoutTest, SizeBytes) {
  EXPECT_EQ(checked_size_bytes({}, 4), 4);
  EXPECT_EQ(checked_size_bytes(Dims{2, 3}, 4), 24);
  EXPECT_EQ(checked_size_bytes(Dims{2, 0, 3}, 4), 0);
  EXPECT_EQ(checked_size_bytes(Dims{1LL << 40, 1LL << 20}, 4), 1LL << 62);
  EXPECT_EQ(checked_size_bytes(Dims{kMax}, 1), kMax);
}

TEST(TensorLayoutTest, SizeBytesRefusesWhatDoesNotFit) {
  EXPECT_EQ(checked_size_bytes(Dims{-1}, 4), std::nullopt);
  EXPECT_EQ(checked_size_bytes(Dims{0, -1}, 4), std::nullopt);
  EXPECT_EQ(checked_size_bytes(Dims{1LL << 40, 1LL << 21}, 4), std::nullopt);
  EXPECT_EQ(checked_size_bytes(Dims{1LL << 62, 1LL << 62, 0}, 1), std::nullopt);
  EXPECT_EQ(checked_size_bytes(Dims{1LL << 32, 1LL << 32}, 1), std::nullopt);
  EXPECT_EQ(checked_size_bytes(Dims{kMax}, 2), std::nullopt);
}

TEST(TensorLayoutTest, OrderOfRowMajorTensors) {
  for (const auto& [sizes, strides] : std::vector<std::pair<Dims, Dims>>{
           {{}, {}}, {{5}, {1}}, {{2, 3}, {3, 1}}, {{2, 1, 3}, {3, 99, 1}}, {{0, 3}, {7, 7}}}) {
    const DimensionOrder order = dimension_order(sizes, strides);
    EXPECT_EQ(order.layout, Layout::kRowMajor);
    EXPECT_TRUE(order.order.empty());
  }
}

TEST(TensorLayoutTest, OrderOfScatteredTensors) {
  for (const auto& [sizes, strides] : std::vector<std::pair<Dims, Dims>>{
           {{5}, {2}}, {{5}, {0}}, {{2, 3}, {4, 1}}, {{2, 3}, {0, 1}}, {{3, 3}, {1, 1}}}) {
    EXPECT_EQ(dimension_order(sizes, strides).layout, Layout::kScattered);
  }
}

TEST(TensorLayoutTest, OrderOfPermutedTensors) {
  EXPECT_THAT(dimension_order(Dims{2, 3}, Dims{1, 2}).order, ElementsAre(1, 0));
  EXPECT_THAT(dimension_order(Dims{2, 3, 4, 5}, Dims{60, 1, 15, 3}).order, ElementsAre(0, 2, 3, 1));
  EXPECT_THAT(dimension_order(Dims{2, 1, 3}, Dims{1, 6, 2}).order, ElementsAre(1, 2, 0));
}

TEST(TensorLayoutTest, EveryPermutationIsRestored) {
  const Dims sizes{2, 3, 4, 5};
  std::vector<std::int32_t> order(4);
  std::iota(order.begin(), order.end(), 0);
  do {
    const Dims strides = dense_strides(sizes, order);
    const DimensionOrder found = dimension_order(sizes, strides);
    EXPECT_EQ(dense_strides(sizes, found.order), strides);
    EXPECT_EQ(found.layout == Layout::kRowMajor, std::is_sorted(order.begin(), order.end()));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(TensorLayoutTest, Permutations) {
  using Order = std::vector<std::int32_t>;
  EXPECT_TRUE(is_permutation(Order{}, 0));
  EXPECT_TRUE(is_permutation(Order{1, 0, 2}, 3));
  EXPECT_FALSE(is_permutation(Order{0, 1}, 3));
  EXPECT_FALSE(is_permutation(Order{0, 0, 1}, 3));
  EXPECT_FALSE(is_permutation(Order{0, 1, 3}, 3));
  EXPECT_FALSE(is_permutation(Order{0, 1, -1}, 3));
}

}  // namespace
}  // namespace sinew::internal
