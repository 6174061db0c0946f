#include "sinew/groups/internal/overlap.h"

#include <random>
#include <set>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

using sinew::internal::first_that_share;
using sinew::internal::overlaps_itself;
using sinew::internal::share_memory;

namespace {

/// Where its elements are, by looking.
std::multiset<std::int64_t> places(const at::Tensor& tensor) {
  std::multiset<std::int64_t> found{tensor.storage_offset()};
  if (tensor.numel() == 0) return {};
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    std::multiset<std::int64_t> more;
    for (const std::int64_t place : found) {
      for (std::int64_t i = 0; i < tensor.size(dim); ++i) {
        more.insert(place + i * tensor.stride(dim));
      }
    }
    found = std::move(more);
  }
  return found;
}

at::Tensor random_view(const at::Tensor& memory, std::mt19937& random) {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  const auto dimensions = random() % 4;
  for (std::size_t dim = 0; dim < dimensions; ++dim) {
    sizes.push_back(static_cast<std::int64_t>(random() % 5));
    strides.push_back(static_cast<std::int64_t>(random() % 12));
  }
  return memory.as_strided(sizes, strides, static_cast<std::int64_t>(random() % 20));
}

TEST(Overlap, IsWhatLookingAtEachElementFinds) {
  std::mt19937 random(20'260'728);
  const at::Tensor memory = at::zeros({200}, at::kShort);
  int overlapping = 0;
  int sharing = 0;
  constexpr int kRounds = 4000;
  for (int round = 0; round < kRounds; ++round) {
    const at::Tensor a = random_view(memory, random);
    const at::Tensor b = random_view(memory, random);
    const std::multiset<std::int64_t> of_a = places(a);
    const std::set<std::int64_t> once(of_a.begin(), of_a.end());
    ASSERT_EQ(overlaps_itself(a), once.size() < of_a.size()) << a.sizes() << a.strides();
    bool shared = false;
    for (const std::int64_t place : places(b)) shared = shared || once.count(place) != 0;
    ASSERT_EQ(share_memory(a, b), shared) << a.sizes() << a.strides() << b.sizes() << b.strides();
    ASSERT_EQ(share_memory(b, a), shared);
    if (once.size() < of_a.size()) ++overlapping;
    if (shared) ++sharing;
  }
  // Both happen often enough to mean something.
  EXPECT_GT(overlapping, kRounds / 10);
  EXPECT_GT(sharing, kRounds / 10);
  EXPECT_LT(sharing, kRounds * 9 / 10);
}

TEST(Overlap, BytesCountWhereTypesDiffer) {
  const at::Tensor bytes = at::zeros({16}, at::kByte);
  const at::Tensor numbers = bytes.view(at::kInt);
  EXPECT_TRUE(share_memory(bytes.slice(0, 7, 8), numbers.slice(0, 1, 2)));
  EXPECT_FALSE(share_memory(bytes.slice(0, 8, 9), numbers.slice(0, 1, 2)));
  EXPECT_FALSE(share_memory(at::zeros({4}), at::zeros({4})));
}

TEST(Overlap, LargeViewsTakeAFewSteps) {
  // A column each of a million rows, and tiles of an image.
  const at::Tensor columns = at::empty({1'000'000, 8}, at::kByte);
  EXPECT_EQ(first_that_share(columns.unbind(1)), std::nullopt);
  const at::Tensor image = at::empty({3, 1024, 1024}, at::kByte);
  std::vector<at::Tensor> tiles;
  for (const at::Tensor& rows : image.split(256, 1)) {
    for (const at::Tensor& tile : rows.split(128, 2)) tiles.push_back(tile);
  }
  EXPECT_EQ(first_that_share(tiles), std::nullopt);
  for (const at::Tensor& tile : tiles) EXPECT_FALSE(overlaps_itself(tile));
  tiles.push_back(image.slice(1, 255, 257).slice(2, 127, 128));
  EXPECT_EQ(first_that_share(tiles), std::make_pair(std::size_t{0}, tiles.size() - 1));
}

}  // namespace
