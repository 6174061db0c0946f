#include "sinew/rpc/base/receive_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
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
  options.max_idle_bytes = 3 * kMiB;
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
  options.max_idle_bytes = 4 * kMiB;
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
