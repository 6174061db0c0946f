#include "sinew/optim/internal/change_queue.h"

#include <cstdint>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sinew/rpc/base/error.h"
#include "sinew/testing/error_of.h"

using sinew::ErrorCode;
using sinew::internal::ChangeQueue;
using sinew::internal::FollowOutcome;
using sinew::testing::error_of;
using ::testing::ElementsAre;

namespace {

TEST(ChangeQueueTest, ChangesAreBegunInTheOrderOfTheirNumbers) {
  ChangeQueue queue;
  queue.begin(7);
  std::vector<std::uint64_t> begun;
  const auto add = [&](std::uint64_t stream, std::uint64_t number) {
    return queue.add({stream, number}, [&begun, number] {
      begun.push_back(number);
      return sinew::make_ready_future(FollowOutcome::kFollowed);
    });
  };
  const auto late = add(7, 3);
  add(7, 1);
  EXPECT_TRUE(begun.empty());
  add(7, 0);
  EXPECT_THAT(begun, ElementsAre(0U, 1U));
  EXPECT_FALSE(late.done());
  EXPECT_EQ(queue.waiting(), 1U);
  EXPECT_EQ(error_of([&] { add(7, 3); }).code(), ErrorCode::kInvalidArgument) << "it waits";
  add(7, 2);
  EXPECT_THAT(begun, ElementsAre(0U, 1U, 2U, 3U));
  EXPECT_EQ(late.wait(), FollowOutcome::kFollowed);
  for (const std::uint64_t number : {2U, 0U, 100'000U}) {
    EXPECT_EQ(error_of([&] { add(7, number); }).code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(error_of([&] { add(8, 1); }).code(), ErrorCode::kAborted);
}

// A change that comes on another thread while the one before it is begun does not overtake it.
TEST(ChangeQueueTest, ChangesAreBegunOneAtATime) {
  ChangeQueue queue;
  queue.begin(7);
  std::vector<std::uint64_t> begun;
  const auto begin = [&begun](std::uint64_t number) {
    begun.push_back(number);
    return sinew::make_ready_future(FollowOutcome::kFollowed);
  };
  queue.add({7, 0}, [&] {
    std::thread([&] { queue.add({7, 1}, [&] { return begin(1); }); }).join();
    return begin(0);
  });
  EXPECT_THAT(begun, ElementsAre(0U, 1U));
}

TEST(ChangeQueueTest, WhatWaitsOfAStreamThatEndsFails) {
  ChangeQueue queue;
  const auto nothing = [] { return sinew::make_ready_future(FollowOutcome::kFollowed); };
  EXPECT_EQ(error_of([&] { queue.add({0, 0}, nothing); }).code(), ErrorCode::kAborted);
  queue.begin(7);
  queue.add({7, 0}, nothing);
  const auto waiting = queue.add({7, 2}, nothing);
  queue.end(8);
  EXPECT_FALSE(waiting.done());
  queue.end(7);
  EXPECT_EQ(error_of([&] { waiting.wait(); }).code(), ErrorCode::kAborted);
  EXPECT_EQ(error_of([&] { queue.add({7, 1}, nothing); }).code(), ErrorCode::kAborted);
  queue.begin(8);
  const auto replaced = queue.add({8, 2}, nothing);
  queue.begin(9);
  EXPECT_EQ(error_of([&] { replaced.wait(); }).code(), ErrorCode::kAborted);
  EXPECT_EQ(queue.waiting(), 0U);
}

TEST(ChangeQueueTest, AChangeThatFailsSaysSo) {
  ChangeQueue queue;
  queue.begin(7);
  const auto failed = queue.add({7, 0}, []() -> sinew::Future<FollowOutcome> {
    throw sinew::RpcError(ErrorCode::kDataLoss, "it does not fit");
  });
  EXPECT_EQ(error_of([&] { failed.wait(); }).code(), ErrorCode::kDataLoss);
}

}  // namespace
