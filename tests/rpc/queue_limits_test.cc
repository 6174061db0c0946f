#include "sinew/rpc/calls/queue_limits.h"

#include <chrono>

#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;

const Clock::TimePoint kArrived{100s};

Clock::TimePoint refused_after(std::chrono::nanoseconds time) {
  return QueueLimits::refused_at(kArrived, kArrived + time);
}

TEST(QueueLimits, RefuseAQuarterOfASecondBeforeTheEndAtMost) {
  EXPECT_EQ(refused_after(60s), kArrived + 59750ms);
  EXPECT_EQ(refused_after(6s), kArrived + 5750ms);
  EXPECT_EQ(refused_after(4s), kArrived + 3750ms);
}

TEST(QueueLimits, RefuseASixteenthBeforeTheEndOfShortTimes) {
  EXPECT_EQ(refused_after(1600ms), kArrived + 1500ms);
  EXPECT_EQ(refused_after(16ms), kArrived + 15ms);
  EXPECT_EQ(refused_after(0ns), kArrived);
}

TEST(QueueLimits, WhatCameTooLateIsRefusedAtItsDeadline) {
  EXPECT_EQ(refused_after(-1s), kArrived - 1s);
}

TEST(QueueLimits, CallsWithoutATimeAreNeverRefused) {
  const auto never = Clock::TimePoint::max();
  EXPECT_EQ(QueueLimits::refused_at(kArrived, never), never);
  EXPECT_EQ(QueueLimits::look_at(kArrived, never, kArrived), kArrived + 3s);
}

TEST(QueueLimits, TheLogHearsOfLongWaitsAgainAndAgain) {
  const Clock::TimePoint deadline = kArrived + 60s;
  EXPECT_EQ(QueueLimits::look_at(kArrived, deadline, kArrived), kArrived + 3s);
  EXPECT_EQ(QueueLimits::look_at(kArrived, deadline, kArrived + 3s), kArrived + 13s);
  EXPECT_EQ(QueueLimits::look_at(kArrived, deadline, kArrived + 55s), kArrived + 59750ms);
  EXPECT_EQ(QueueLimits::look_at(kArrived, kArrived + 1600ms, kArrived), kArrived + 1500ms);
}

}  // namespace
}  // namespace sinew::internal
