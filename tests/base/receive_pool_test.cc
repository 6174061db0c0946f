#include "sinew/rpc/base/receive_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace sinew::internal {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(ReceivePoolTest, BlocksServeAgain) {
  ReceivePool pool({});
  auto block = pool.allocate(kMiB + 1);
  ASSERT_GE(block->capacity(), kMiB + 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block->data()) % 4096, 0U);
  EXPECT_EQ(pool.stats().used_bytes, block->capacity());
  char* const memory = block->data();
  block = nullptr;
  EXPECT_EQ(pool.stats().used_bytes, 0U);
  EXPECT_GT(pool.stats().idle_bytes, kMiB);
  // A little less is as good; much less would be a waste.
  EXPECT_NE(pool.allocate(kMiB / 2)->data(), memory);
  EXPECT_EQ(pool.stats().reuses, 0U);
  block = pool.allocate(kMiB - 10);
  EXPECT_EQ(block->data(), memory);
  EXPECT_EQ(pool.stats().reuses, 1U);
  std::memset(block->data(), 1, block->capacity());
}

TEST(ReceivePoolTest, WhatIsIdleIsBounded) {
  ReceivePool::Options options;
  options.bounds.max_idle = 3 * kMiB;
  ReceivePool pool(options);
  std::vector<std::shared_ptr<ReceiveBlock>> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool.allocate(kMiB));
  EXPECT_EQ(pool.stats().used_bytes, 8 * kMiB);
  blocks.clear();
  EXPECT_EQ(pool.stats().used_bytes, 0U);
  EXPECT_EQ(pool.stats().idle_bytes, 3 * kMiB);
  pool.allocate(4 * kMiB);
  EXPECT_EQ(pool.stats().idle_bytes, 0U) << "the oldest ones go first, and it is too large itself";
}

TEST(ReceivePoolTest, OldBlocksGoBackToTheSystem) {
  ReceivePool::Options options;
  options.max_idle_time = std::chrono::nanoseconds(0);
  ReceivePool pool(options);
  pool.allocate(kMiB);
  EXPECT_EQ(pool.stats().idle_bytes, kMiB);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  pool.allocate(4096);
  EXPECT_EQ(pool.stats().idle_bytes, 4096U);
}

TEST(ReceivePoolTest, TheyDoSoWithoutFurtherUse) {
  ReceivePool::Options options;
  options.max_idle_time = std::chrono::nanoseconds(0);
  ReceivePool pool(options);
  pool.allocate(kMiB);
  pool.allocate(20 * kMiB);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  pool.release_old();
  EXPECT_EQ(pool.stats().idle_bytes, 0U);
}

TEST(ReceivePoolTest, BlocksWhosePagesTheSystemMayTakeServeAgain) {
  ReceivePool::Options options;
  options.max_kept_time = std::chrono::nanoseconds(0);
  ReceivePool pool(options);
  char* const memory = pool.allocate(20 * kMiB)->data();
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  pool.release_old();
  EXPECT_EQ(pool.stats().idle_bytes, 20 * kMiB);
  const auto block = pool.allocate(20 * kMiB);
  ASSERT_EQ(block->data(), memory);
  std::memset(block->data(), 7, 20 * kMiB);
  pool.release_old();
  EXPECT_EQ(std::string(block->data(), 20 * kMiB), std::string(20 * kMiB, 7))
      << "it is in use again";
}

TEST(ReceivePoolTest, IdleBlocksAreCutToWhatIsNeeded) {
  ReceivePool pool({});
  char* const memory = pool.allocate(64 * kMiB)->data();
  auto first = pool.allocate(6 * kMiB);
  EXPECT_EQ(first->data(), memory);
  EXPECT_EQ(first->capacity(), 6 * kMiB);
  auto second = pool.allocate(20 * kMiB);
  EXPECT_EQ(second->data(), memory + 6 * kMiB);
  EXPECT_EQ(pool.stats().used_bytes, 26 * kMiB);
  EXPECT_EQ(pool.stats().idle_bytes, 38 * kMiB);
  std::memset(first->data(), 1, first->capacity());
  std::memset(second->data(), 2, second->capacity());
  EXPECT_EQ(first->data()[6 * kMiB - 1], 1);
  first = nullptr;
  second = nullptr;
  // Side by side they are one again.
  EXPECT_EQ(pool.allocate(64 * kMiB)->data(), memory);
  EXPECT_EQ(pool.stats().reuses, 3U);
}

TEST(ReceivePoolTest, WhatIsInUseBetweenThemParts) {
  ReceivePool pool({});
  char* const memory = pool.allocate(64 * kMiB)->data();
  auto first = pool.allocate(16 * kMiB);
  const auto second = pool.allocate(16 * kMiB);
  first = nullptr;
  // The smallest that suffices.
  EXPECT_EQ(pool.allocate(10 * kMiB)->data(), memory);
  EXPECT_EQ(pool.allocate(24 * kMiB)->data(), memory + 32 * kMiB);
  EXPECT_EQ(pool.stats().used_bytes, 16 * kMiB);
  EXPECT_EQ(pool.stats().idle_bytes, 48 * kMiB);
}

TEST(ReceivePoolTest, AFreshBlockComesInThePlaceOfIdleOnes) {
  ReceivePool pool({});
  for (const std::size_t size : {2, 4, 8, 16, 32, 64}) {
    pool.allocate(size * kMiB);
    EXPECT_EQ(pool.stats().idle_bytes, size * kMiB);
  }
  EXPECT_EQ(pool.stats().reuses, 0U);
  // Small ones stay.
  pool.allocate(kMiB);
  pool.allocate(100 * kMiB);
  EXPECT_EQ(pool.stats().idle_bytes, 101 * kMiB);
}

TEST(ReceivePoolTest, MixedSizesNeedLittleMoreThanIsInUseAtOnce) {
  ReceivePool::Options options;
  options.bounds.max_idle = 4096 * kMiB;
  ReceivePool pool(options);
  std::minstd_rand random(7);
  std::deque<std::shared_ptr<ReceiveBlock>> in_use;
  std::size_t most_used = 0;
  for (int i = 0; i < 3000; ++i) {
    in_use.push_back(pool.allocate((1 + random() % 64) * kMiB));
    most_used = std::max(most_used, pool.stats().used_bytes);
    if (in_use.size() == 3) in_use.erase(in_use.begin() + random() % 3);
    ASSERT_LE(pool.stats().used_bytes + pool.stats().idle_bytes, 2 * 3 * 64 * kMiB) << i;
  }
  EXPECT_GT(most_used, 128 * kMiB);
  EXPECT_GT(pool.stats().reuses, 2500U) << "fresh pages cost more than a copy";
}

TEST(ReceivePoolTest, NothingIsKeptOnceMuchIsInUse) {
  ReceivePool::Options options;
  options.bounds.max_held = 100 * kMiB;
  ReceivePool pool(options);
  pool.allocate(40 * kMiB);
  EXPECT_EQ(pool.stats().idle_bytes, 40 * kMiB);
  const auto used = pool.allocate(60 * kMiB);
  pool.allocate(40 * kMiB);
  EXPECT_EQ(pool.stats().idle_bytes, 40 * kMiB);
  const auto more = pool.allocate(60 * kMiB);
  EXPECT_EQ(pool.stats().idle_bytes, 0U) << "it is over";
  pool.allocate(4 * kMiB);
  EXPECT_EQ(pool.stats().idle_bytes, 0U);
}

TEST(ReceivePoolTest, BoundsFollowTheMemoryThatThereIs) {
  const ReceivePool::Bounds small = ReceivePool::bounds_for(512 * kMiB);
  EXPECT_EQ(small.max_idle, 64 * kMiB);
  EXPECT_EQ(small.max_held, 384 * kMiB);
  EXPECT_EQ(ReceivePool::bounds_for(24 * 1024 * kMiB).max_idle, 3 * 1024 * kMiB);
  EXPECT_EQ(ReceivePool::bounds_for(512 * 1024 * kMiB).max_idle, 4 * 1024 * kMiB);
  ReceivePool pool({});
  pool.allocate(64 * kMiB);
  pool.set_bounds(ReceivePool::bounds_for(256 * kMiB));
  EXPECT_EQ(pool.bounds().max_idle, 32 * kMiB);
  pool.release_old();
  EXPECT_EQ(pool.stats().idle_bytes, 0U);
}

TEST(ReceivePoolTest, TrimGivesAllBack) {
  ReceivePool pool({});
  const auto used = pool.allocate(kMiB);
  pool.allocate(kMiB);
  pool.trim();
  EXPECT_EQ(pool.stats().idle_bytes, 0U);
  EXPECT_EQ(pool.stats().used_bytes, kMiB);
}

TEST(ReceivePoolTest, ABlockIsClaimedOnce) {
  ReceivePool pool({});
  auto block = pool.allocate(kMiB);
  const absl::string_view bytes(block->data(), 1000);
  EXPECT_EQ(pool.claim(bytes.substr(1)), nullptr) << "not where it begins";
  EXPECT_EQ(pool.claim({block->data(), 2 * kMiB}), nullptr) << "more than it has";
  const std::string elsewhere = "elsewhere";
  EXPECT_EQ(pool.claim(elsewhere), nullptr);
  auto claimed = pool.claim(bytes);
  EXPECT_EQ(claimed, block);
  EXPECT_EQ(pool.claim(bytes), nullptr);
  block = nullptr;
  EXPECT_EQ(pool.stats().used_bytes, kMiB);
  claimed = nullptr;
  EXPECT_EQ(pool.stats().used_bytes, 0U);
  // The next one to have the memory may claim it again.
  const auto again = pool.allocate(kMiB);
  EXPECT_EQ(again->data(), bytes.data());
  EXPECT_EQ(pool.claim(bytes), again);
}

TEST(ReceivePoolTest, TooMuchIsRefused) {
  ReceivePool pool({});
  EXPECT_THROW(pool.allocate(std::numeric_limits<std::size_t>::max()), std::bad_alloc);
  EXPECT_EQ(pool.stats().used_bytes, 0U);
}

TEST(ReceivePoolTest, NoTwoThreadsHaveABlock) {
  ReceivePool::Options options;
  options.bounds.max_idle = 4 * kMiB;
  ReceivePool pool(options);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&pool, thread] {
      for (int i = 0; i < 300; ++i) {
        const std::size_t size = 1 + static_cast<std::size_t>(i % 7) * 50'000;
        const auto block = pool.allocate(size);
        std::memset(block->data(), thread, size);
        ASSERT_EQ(pool.claim({block->data(), size}), block);
        if (i % 50 == 0) pool.trim();
        for (std::size_t at = 0; at < size; at += 1000) ASSERT_EQ(block->data()[at], thread);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.stats().used_bytes, 0U);
}

}  // namespace
}  // namespace sinew::internal
