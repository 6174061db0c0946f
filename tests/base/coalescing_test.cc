// What is done once for several events: flushes after tasks and before waits, wake-ups of many
// futures, and threads that are not woken for short tasks.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/flushable.h"
#include "sinew/testing/eventually.h"

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;
using sinew::testing::eventually;

class CountingFlushable final : public Flushable {
 public:
  void flush() override { ++flushes; }
  std::atomic<int> flushes{0};
};

class Coalescing : public ::testing::Test {
 protected:
  static constexpr std::size_t kThreads = 3;

  static Executor::Options options() {
    Executor::Options options;
    options.num_threads = kThreads;
    return options;
  }

  // Starts all threads of the pool, and lets them find out that tasks are short.
  void warm_up() {
    std::promise<void> gate;
    const std::shared_future<void> opened = gate.get_future().share();
    for (std::size_t i = 0; i < kThreads; ++i) executor_.post([opened] { opened.wait(); });
    ASSERT_TRUE(eventually([&] { return executor_.stats().threads == kThreads; }));
    gate.set_value();
    for (int round = 0; round < 20; ++round) {
      std::vector<Task> tasks;
      for (int i = 0; i < 100; ++i) tasks.emplace_back([] {});
      executor_.post_all(std::move(tasks));
      ASSERT_TRUE(eventually([&] { return executor_.stats().queued_tasks == 0; }));
    }
  }

  Executor executor_{options()};
};

TEST_F(Coalescing, ALongTaskAmongShortOnesHoldsUpNobody) {
  for (int round = 0; round < 20; ++round) {
    warm_up();
    std::promise<void> gate;
    const std::shared_future<void> opened = gate.get_future().share();
    std::atomic<int> ran{0};
    std::vector<Task> tasks;
    tasks.emplace_back([opened] { opened.wait(); });  // Not a wait that the pool knows of.
    for (int i = 0; i < 10; ++i) tasks.emplace_back([&] { ++ran; });
    executor_.post_all(std::move(tasks));
    EXPECT_TRUE(eventually([&] { return ran == 10; }));
    gate.set_value();
  }
}

TEST_F(Coalescing, FlushLaterIsRefusedWhereNothingFollows) {
  const auto what = std::make_shared<CountingFlushable>();
  EXPECT_FALSE(Executor::flush_later(what)) << "this thread runs no task";
  Promise<bool> accepted;
  executor_.post([&] { accepted.set_value(Executor::flush_later(what)); });
  EXPECT_FALSE(accepted.future().wait());
  EXPECT_EQ(what->flushes, 0);
}

TEST_F(Coalescing, FlushesForAllShortTasksAtOnce) {
  warm_up();
  // How often tasks find others behind them is up to the threads; mostly they do.
  const bool shared = eventually([&] {
    const auto what = std::make_shared<CountingFlushable>();
    std::atomic<int> accepted{0};
    std::atomic<int> ran{0};
    std::vector<Task> tasks;
    for (int i = 0; i < 50; ++i) {
      tasks.emplace_back([&] {
        if (Executor::flush_later(what)) ++accepted;
        ++ran;
      });
    }
    executor_.post_all(std::move(tasks));
    EXPECT_TRUE(eventually([&] { return ran == 50; }));
    if (accepted == 0) return false;
    EXPECT_TRUE(eventually([&] { return what->flushes > 0; }));
    return accepted > what->flushes;
  });
  EXPECT_TRUE(shared);
}

TEST_F(Coalescing, WhatIsPutOffIsFlushedThoughTheNextTaskIsLong) {
  warm_up();
  const bool accepted = eventually([&] {
    const auto what = std::make_shared<CountingFlushable>();
    std::promise<bool> answer;
    std::vector<Task> tasks;
    tasks.emplace_back([&] { answer.set_value(Executor::flush_later(what)); });
    tasks.emplace_back([what] { eventually([&] { return what->flushes > 0; }); });
    executor_.post_all(std::move(tasks));
    const bool put_off = answer.get_future().get();
    if (!put_off) what->flush();
    EXPECT_TRUE(eventually([&] { return what->flushes > 0; }));
    return put_off;
  });
  EXPECT_TRUE(accepted);
}

TEST_F(Coalescing, ATaskThatWaitsFlushesFirst) {
  warm_up();
  const auto what = std::make_shared<CountingFlushable>();
  Promise<void> gate;
  Promise<int> seen;
  executor_.post([&] {
    Executor::flush_later(what);
    flush_before_wait(what);
    gate.future().wait();
    seen.set_value(what->flushes);
  });
  EXPECT_TRUE(eventually([&] { return what->flushes > 0; }));
  gate.set_value();
  EXPECT_GE(seen.future().wait(), 1);
}

TEST(FlushBeforeWait, HappensOnceAndOnlyWhenTheThreadWaits) {
  const auto what = std::make_shared<CountingFlushable>();
  const auto other = std::make_shared<CountingFlushable>();
  flush_before_wait(what);
  flush_before_wait(other);
  flush_before_wait(what);
  make_ready_future().wait();
  EXPECT_EQ(what->flushes, 0) << "there was nothing to wait for";
  const Promise<void> never;
  EXPECT_THROW(never.future().wait_for(1ms), RpcError);
  EXPECT_EQ(what->flushes, 1);
  EXPECT_EQ(other->flushes, 1);
  EXPECT_THROW(never.future().wait_for(1ms), RpcError);
  EXPECT_EQ(what->flushes, 1) << "it was not asked for again";
}

TEST(FlushBeforeWait, KeepsNothingAlive) {
  auto what = std::make_shared<CountingFlushable>();
  const std::weak_ptr<CountingFlushable> weak = what;
  flush_before_wait(what);
  what.reset();
  EXPECT_TRUE(weak.expired());
  flush_now();
}

TEST(WakeBatchTest, WakesAllWaitersWhenTheOutermostEnds) {
  constexpr int kWaiters = 4;
  std::vector<Promise<int>> promises(kWaiters);
  std::atomic<int> sum{0};
  std::vector<std::thread> waiters;
  for (const Promise<int>& promise : promises) {
    waiters.emplace_back([&sum, future = promise.future()] { sum += future.wait(); });
  }
  {
    const WakeBatch outer;
    for (int i = 0; i < kWaiters; ++i) {
      const WakeBatch inner;
      promises[i].set_value(i);
      EXPECT_TRUE(promises[i].future().done()) << "the outcome itself is not put off";
    }
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(sum, 6);
}

}  // namespace
}  // namespace sinew::internal
