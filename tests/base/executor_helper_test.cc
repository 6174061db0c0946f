#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/testing/eventually.h"

namespace sinew::internal {
namespace {

using sinew::testing::eventually;

Executor::Options pool_of(std::size_t num_threads) {
  Executor::Options options;
  options.num_threads = num_threads;
  return options;
}

/// One that can watch what is left to a helper.
Executor::Options with_parked_thread() {
  Executor::Options options = pool_of(1);
  options.min_threads = 1;
  return options;
}

TEST(ExecutorHelperTest, RunsWhatItsThreadPosts) {
  Executor executor(pool_of(1));
  Executor::Helper helper;
  std::thread::id ran_on;
  {
    const Executor::Helper::Offer offer(&helper);
    EXPECT_FALSE(helper.has_tasks());
    executor.post([&] {
      ran_on = std::this_thread::get_id();
      EXPECT_EQ(Executor::current(), &executor);
    });
  }
  EXPECT_TRUE(helper.has_tasks());
  EXPECT_GT(helper.workload().duration.count(), 0);
  EXPECT_EQ(executor.stats().queued_tasks, 1u);
  helper.run();
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_EQ(Executor::current(), nullptr);
  EXPECT_FALSE(helper.has_tasks());
  EXPECT_EQ(executor.stats().threads, 0u) << "no thread was started for it";
}

TEST(ExecutorHelperTest, ServesManyTimes) {
  Executor executor(pool_of(2));
  Executor::Helper helper;
  std::atomic<int> runs{0};
  for (int i = 0; i < 1000; ++i) {
    {
      const Executor::Helper::Offer offer(&helper);
      executor.post([&] { ++runs; });
      executor.post([&] { ++runs; });
    }
    helper.run();
  }
  executor.shutdown();
  EXPECT_EQ(runs, 2000);
}

TEST(ExecutorHelperTest, OffersNothingOutsideOfTheScope) {
  Executor executor(pool_of(1));
  Executor::Helper helper;
  { const Executor::Helper::Offer offer(&helper); }
  { const Executor::Helper::Offer nothing(nullptr); }
  std::atomic<bool> ran{false};
  executor.post([&] { ran = true; });
  EXPECT_FALSE(helper.has_tasks());
  EXPECT_TRUE(eventually([&] { return ran.load(); }));
}

TEST(ExecutorHelperTest, ServesTwoExecutors) {
  Executor first(pool_of(1));
  Executor second(with_parked_thread());
  Executor third(pool_of(1));
  Executor::Helper helper;
  std::vector<std::thread::id> ran_on(3);
  std::atomic<bool> ran_third{false};
  {
    const Executor::Helper::Offer offer(&helper);
    first.post([&] { ran_on[0] = std::this_thread::get_id(); });
    second.post([&] { ran_on[1] = std::this_thread::get_id(); });
    third.post([&] {
      ran_on[2] = std::this_thread::get_id();
      ran_third = true;
    });
  }
  EXPECT_TRUE(eventually([&] { return ran_third.load(); })) << "must not wait for the helper";
  helper.run();
  EXPECT_FALSE(helper.has_tasks());
  second.shutdown();
  EXPECT_EQ(ran_on[0], std::this_thread::get_id());
  // On a busy machine the second one's own thread may have been faster.
  EXPECT_NE(ran_on[1], std::thread::id());
  EXPECT_NE(ran_on[2], std::this_thread::get_id());
}

TEST(ExecutorHelperTest, WithoutAThreadThatWatchesTheSecondExecutorStartsOne) {
  Executor first(pool_of(1));
  Executor second(pool_of(1));
  Executor::Helper helper;
  std::atomic<bool> ran_first{false};
  std::atomic<bool> ran_second{false};
  {
    const Executor::Helper::Offer offer(&helper);
    first.post([&] { ran_first = true; });
    second.post([&] { ran_second = true; });
  }
  EXPECT_TRUE(eventually([&] { return ran_second.load(); })) << "must not wait for the helper";
  EXPECT_FALSE(ran_first);
  helper.run();
  EXPECT_TRUE(ran_first);
}

TEST(ExecutorHelperTest, TasksOfTheSecondExecutorDoNotWaitForLongOnesOfTheFirst) {
  Executor first(pool_of(1));
  Executor second(with_parked_thread());
  Executor::Helper helper;
  for (int i = 0; i < 20; ++i) {
    std::atomic<int> ran_second{0};
    {
      const Executor::Helper::Offer offer(&helper);
      first.post([&] { EXPECT_TRUE(eventually([&] { return ran_second == 2; })); });
      second.post([&] { ++ran_second; });
      second.post([&] { ++ran_second; });
    }
    helper.run();
    EXPECT_EQ(ran_second, 2);
    // Its one thread is to be parked, and no longer watch.
    EXPECT_TRUE(eventually([&] { return second.stats().idle_threads == 1; }));
  }
}

TEST(ExecutorHelperTest, NeverTwoTasksAtOnceWhereTheHelperComesLate) {
  Executor first(pool_of(1));
  Executor second(with_parked_thread());
  Executor::Helper helper;
  std::atomic<int> running{0};
  std::atomic<int> ran{0};
  constexpr int kRounds = 500;
  for (int i = 0; i < kRounds; ++i) {
    {
      const Executor::Helper::Offer offer(&helper);
      first.post([i] { std::this_thread::sleep_for(std::chrono::microseconds(i * 10)); });
      for (int task = 0; task < 3; ++task) {
        second.post([&] {
          EXPECT_EQ(++running, 1);
          std::this_thread::yield();
          --running;
          ++ran;
        });
      }
    }
    helper.run();
  }
  second.shutdown();
  EXPECT_EQ(ran, 3 * kRounds);
}

TEST(ExecutorHelperTest, CountsAsOneOfTheThreads) {
  Executor executor(pool_of(1));
  Executor::Helper helper;
  std::atomic<bool> running{false};
  std::atomic<bool> go_on{false};
  std::atomic<bool> second_ran{false};
  std::thread thread([&] {
    {
      const Executor::Helper::Offer offer(&helper);
      executor.post([&] {
        running = true;
        EXPECT_TRUE(eventually([&] { return go_on.load(); }));
        EXPECT_FALSE(second_ran) << "two tasks of an executor with one thread ran at once";
      });
    }
    helper.run();
  });
  EXPECT_TRUE(eventually([&] { return running.load(); }));
  executor.post([&] { second_ran = true; });
  go_on = true;
  thread.join();
  EXPECT_TRUE(eventually([&] { return second_ran.load(); }));
}

TEST(ExecutorHelperTest, AnotherThreadTakesItsPlaceWhileItWaits) {
  Executor executor(pool_of(1));
  Executor::Helper helper;
  const Promise<int> promise(&executor);
  int value = 0;
  {
    const Executor::Helper::Offer offer(&helper);
    executor.post([&] { value = promise.future().wait(); });
    executor.post([&] { promise.set_value(7); });
  }
  helper.run();
  EXPECT_EQ(value, 7);
}

TEST(ExecutorHelperTest, ShutdownWaitsForIt) {
  Executor executor(pool_of(1));
  Executor::Helper helper;
  std::atomic<bool> ran{false};
  {
    const Executor::Helper::Offer offer(&helper);
    executor.post([&] { ran = true; });
  }
  std::thread stopper([&] {
    executor.shutdown();
    EXPECT_TRUE(ran);
  });
  EXPECT_TRUE(eventually([&] { return !executor.post([] {}); }));
  helper.run();
  stopper.join();
}

}  // namespace
}  // namespace sinew::internal
