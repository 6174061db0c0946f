#include "sinew/rpc/base/threads/wake_up_price.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <thread>

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;

TEST(WakeUpPrice, IsMeasured) {
  const auto price = WakeUpPrice::measure();
  EXPECT_GE(price, 1us);
  EXPECT_LT(price, 1s);
  EXPECT_EQ(&WakeUpPrice::of_host(), &WakeUpPrice::of_host());
}

TEST(WakeUpPrice, FollowsTheMedianOfTheLatest) {
  WakeUpPrice price(30us);
  for (int i = 0; i < 1000; ++i) price.learn(i % 3 == 0 ? 10ms : 50us);
  EXPECT_GT(price.now(), 45us);
  EXPECT_LT(price.now(), 60us) << "one of three is no median";
}

TEST(WakeUpPrice, HasBounds) {
  WakeUpPrice price(32us);
  for (int i = 0; i < 1000; ++i) price.learn(1s);
  EXPECT_EQ(price.now(), 128us) << "four times the first";
  for (int i = 0; i < 1000; ++i) price.learn(0us);
  EXPECT_EQ(price.now(), 1us);
}

TEST(WakeUpPrice, LearnsOnlyWhereTheCoreWasAnotherOne) {
  WakeUpPrice price(30us);
  WakeUpPrice::Call call = WakeUpPrice::Call::now();
  EXPECT_GE(call.core, 0);
  call.at -= 1ms;
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(static_cast<std::size_t>(call.core), &here);
  // In a thread of its own, which stays there.
  std::thread([&] {
    ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof here, &here), 0);
    price.on_wake_up(call);
    EXPECT_EQ(price.now(), 30us);
    call.core = -1;
    price.on_wake_up(call);
    EXPECT_GT(price.now(), 30us);
  }).join();
}

}  // namespace
}  // namespace sinew::internal
