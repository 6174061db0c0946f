#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/tests/support/eventually.h"

namespace sinew::internal {
namespace {

using sinew::testing::eventually;

Executor::Options with_threads(std::size_t num_threads) {
  Executor::Options options;
  options.num_threads = num_threads;
  return options;
}

TEST(ExecutorHelperTest, RunsWhatItsThreadPosts) {
  Executor executor(with_threads(1));
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
  Executor executor(with_threads(2));
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
  Executor executor(with_threads(1));
  Executor::Helper helper;
  { const Executor::Helper::Offer offer(&helper); }
  { const Executor::Helper::Offer nothing(nullptr); }
  std::atomic<bool> ran{false};
  executor.post([&] { ran = true; });
  EXPECT_FALSE(helper.has_tasks());
  EXPECT_TRUE(eventually([&] { return ran.load(); }));
}

TEST(ExecutorHelperTest, ServesOneExecutorAtATime) {
  Executor first(with_threads(1));
  Executor second(with_threads(1));
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

TEST(ExecutorHelperTest, CountsAsOneOfTheThreads) {
  Executor executor(with_threads(1));
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
  Executor executor(with_threads(1));
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
  Executor executor(with_threads(1));
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
