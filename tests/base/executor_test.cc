#include "sinew/rpc/base/threads/executor.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/future.h"
#include "sinew/tests/support/eventual_value.h"

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;
using sinew::testing::eventually;

Executor::Options with_threads(std::size_t num_threads) {
  Executor::Options options;
  options.num_threads = num_threads;
  return options;
}

TEST(ExecutorTest, RunsTasksInOrder) {
  std::vector<int> order;
  {
    Executor executor(with_threads(1));
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(executor.post([&order, i] { order.push_back(i); }));
    std::vector<Task> batch;
    for (int i = 100; i < 200; ++i) batch.emplace_back([&order, i] { order.push_back(i); });
    EXPECT_TRUE(executor.post_all(std::move(batch)));
    EXPECT_TRUE(executor.post_all({}));
  }
  ASSERT_EQ(order.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(order[i], i);
}

TEST(ExecutorTest, UsesAllThreadsAndNoMore) {
  constexpr int kThreads = 3;
  Executor executor(with_threads(kThreads));
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  for (int i = 0; i < 20; ++i) {
    executor.post([&, opened] {
      const int now = ++inside;
      for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
      }
      opened.wait();
      --inside;
    });
  }
  EXPECT_TRUE(eventually([&] { return inside == kThreads; }));
  EXPECT_EQ(executor.stats().threads, static_cast<std::size_t>(kThreads));
  EXPECT_EQ(executor.stats().queued_tasks, 17u);
  EXPECT_FALSE(executor.is_stalled()) << "threads that compute are no deadlock";
  gate.set_value();
  executor.shutdown();
  EXPECT_EQ(most, kThreads);
  EXPECT_EQ(executor.stats().threads, 0u);
}

TEST(ExecutorTest, NoThreadsMeansOne) {
  Executor executor(with_threads(0));
  Promise<int> promise;
  executor.post([&] { promise.set_value(1); });
  EXPECT_EQ(promise.future().wait(), 1);
}

TEST(ExecutorTest, KnowsItsThreads) {
  EXPECT_EQ(Executor::current(), nullptr);
  Executor::Options options;
  options.name = "a-rather-long-name";
  Executor executor(options);
  Promise<std::string> name;
  executor.post([&] {
    EXPECT_EQ(Executor::current(), &executor);
    char buffer[32] = {};
    pthread_getname_np(pthread_self(), buffer, sizeof(buffer));
    name.set_value(buffer);
  });
  EXPECT_EQ(name.future().wait(), "a-rather-long-n");
  EXPECT_EQ(Executor::current(), nullptr);
}

TEST(ExecutorTest, ShutdownRunsWhatIsQueuedAndRefusesTheRest) {
  Executor executor(with_threads(2));
  std::atomic<int> ran{0};
  for (int i = 0; i < 100; ++i) executor.post([&] { ++ran; });
  std::vector<std::thread> closers;
  for (int i = 0; i < 3; ++i) {
    closers.emplace_back([&] {
      executor.shutdown();
      EXPECT_EQ(ran, 100) << "no shutdown() returns before the work is done";
    });
  }
  for (std::thread& closer : closers) closer.join();
  auto held = std::make_shared<int>(1);
  EXPECT_FALSE(executor.post([held] { FAIL(); }));
  std::vector<Task> batch;
  batch.emplace_back([held] { FAIL(); });
  EXPECT_FALSE(executor.post_all(std::move(batch)));
  EXPECT_FALSE(executor.runner()->post([held] { FAIL(); }));
  EXPECT_EQ(held.use_count(), 1) << "a refused task is destroyed";
  executor.shutdown();
}

TEST(ExecutorTest, ShutdownFinishesTasksThatWait) {
  Executor executor(with_threads(1));
  Promise<void> gate;
  std::atomic<int> ran{0};
  executor.post([&] {
    gate.future().wait();
    ++ran;
  });
  executor.post([&] { ++ran; });
  EXPECT_TRUE(eventually([&] { return executor.stats().blocked_threads == 1; }));
  std::thread closer([&] { executor.shutdown(); });
  EXPECT_TRUE(eventually([&] { return !executor.post([] {}); }));
  gate.set_value();
  closer.join();
  EXPECT_EQ(ran, 2);
}

TEST(ExecutorTest, AHandleOutlivesThePool) {
  std::shared_ptr<TaskRunner> runner;
  {
    Executor executor(with_threads(1));
    runner = executor.runner();
    Promise<void> ran;
    EXPECT_TRUE(runner->post([&] { ran.set_value(); }));
    ran.future().wait();
  }
  EXPECT_FALSE(runner->post([] { FAIL(); }));
}

TEST(ExecutorTest, TasksAreDestroyedBeforeTheNextOneRuns) {
  Executor executor(with_threads(1));
  auto held = std::make_shared<int>(1);
  std::weak_ptr<int> watch = held;
  Promise<bool> gone;
  executor.post([held = std::move(held)] {});
  executor.post([&] { gone.set_value(watch.expired()); });
  EXPECT_TRUE(gone.future().wait());
}

TEST(ExecutorTest, StressFromManyThreads) {
  constexpr int kPosters = 4;
  constexpr int kEach = 5000;
  std::atomic<int> ran{0};
  {
    Executor executor(with_threads(3));
    std::vector<std::thread> posters;
    for (int p = 0; p < kPosters; ++p) {
      posters.emplace_back([&] {
        for (int i = 0; i < kEach; ++i) {
          executor.post([&] {
            if (++ran % 7 == 0) executor.post([&] { ++ran; });
          });
        }
      });
    }
    for (std::thread& poster : posters) poster.join();
    EXPECT_TRUE(eventually([&] { return executor.stats().queued_tasks == 0; }));
  }
  EXPECT_GE(ran, kPosters * kEach);
}

TEST(ExecutorDeathTest, ATaskThatThrowsEndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        Executor executor(with_threads(1));
        executor.post([] { throw std::runtime_error("escaped from a task"); });
      },
      "escaped from a task");
}

TEST(ExecutorDeathTest, ATaskCannotShutItsPoolDown) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        Executor executor(with_threads(1));
        executor.post([&] { executor.shutdown(); });
      },
      "shut down or destroyed by one of its own tasks");
}

// ---- blocking (OBS-10)

int nest(Executor& executor, int depth) {
  if (depth == 0) return 0;
  Promise<int> inner;
  executor.post([&executor, inner, depth] { inner.set_value(nest(executor, depth - 1)); });
  return 1 + inner.future().wait();
}

TEST(ExecutorBlocking, FiftyNestedWaitsFinishOnOneThread) {
  Executor executor(with_threads(1));
  Promise<int> outer;
  executor.post([&] { outer.set_value(nest(executor, 50)); });
  EXPECT_EQ(outer.future().wait(), 50);
  // The threads of the nested waits go, but for a few.
  EXPECT_EVENTUALLY(executor.stats().threads, ::testing::Le(5U));
  EXPECT_EQ(executor.stats().blocked_threads, 0u);
}

TEST(ExecutorBlocking, OneBeyondTheCapIsAnErrorAndTheOthersGoOn) {
  Executor::Options options = with_threads(1);
  options.max_blocked_threads = 2;
  options.name = "pool";
  Executor executor(options);
  Promise<void> gate;
  std::vector<Future<int>> waiting;
  for (int i = 0; i < 2; ++i) {
    Promise<int> done;
    waiting.push_back(done.future());
    executor.post([&, done] {
      gate.future().wait();
      done.set_value(1);
    });
  }
  EXPECT_TRUE(eventually([&] { return executor.stats().blocked_threads == 2; }));
  Promise<RpcError> refused;
  executor.post([&] {
    try {
      const Executor::BlockingScope scope([] { return std::string("outer -> inner"); });
      ADD_FAILURE() << "a third task may not block";
    } catch (const RpcError& error) {
      refused.set_value(error);
    }
  });
  const RpcError error = refused.future().wait();
  EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(error.message().find("'pool'"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("outer -> inner"), std::string::npos) << error.message();
  EXPECT_FALSE(executor.is_stalled());
  gate.set_value();
  EXPECT_EQ(wait_all(waiting), (std::vector<int>{1, 1}));
}

TEST(ExecutorBlocking, NestedScopesCountOnceAndOtherThreadsNotAtAll) {
  const Executor::BlockingScope outside;
  Executor::Options options = with_threads(1);
  options.max_blocked_threads = 1;
  Executor executor(options);
  Promise<std::size_t> blocked;
  executor.post([&] {
    const Executor::BlockingScope outer;
    const Executor::BlockingScope inner;
    blocked.set_value(executor.stats().blocked_threads);
  });
  EXPECT_EQ(blocked.future().wait(), 1u);
  EXPECT_TRUE(eventually([&] { return executor.stats().blocked_threads == 0; }));
}

// Starts `allowed` threads and then fails as the system does when it has no more.
std::function<std::thread(std::function<void()>)> limited_starter(
    std::shared_ptr<std::atomic<int>> allowed) {
  return [allowed](std::function<void()> body) {
    if (allowed->fetch_sub(1) <= 0) {
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    }
    return std::thread(std::move(body));
  };
}

TEST(ExecutorBlocking, IsStalledWhenEveryThreadWaitsAndNoneCanBeAdded) {
  const auto allowed = std::make_shared<std::atomic<int>>(2);
  Executor::Options options = with_threads(2);
  options.start_thread = limited_starter(allowed);
  Executor executor(options);
  Promise<void> gate;
  for (int i = 0; i < 2; ++i) executor.post([&] { gate.future().wait(); });
  ASSERT_TRUE(eventually([&] { return executor.stats().blocked_threads == 2; }));
  EXPECT_FALSE(executor.is_stalled()) << "nothing is queued";
  Promise<int> rescued;
  executor.post([&] { rescued.set_value(1); });
  EXPECT_TRUE(executor.is_stalled());
  EXPECT_FALSE(rescued.future().done());
  // Once the system has threads again, the next task brings one.
  *allowed = 1;
  executor.post([] {});
  EXPECT_FALSE(executor.is_stalled());
  EXPECT_EQ(rescued.future().wait(), 1);
  gate.set_value();
}

TEST(ExecutorBlocking, AWaitThatWouldStallThePoolFails) {
  const auto allowed = std::make_shared<std::atomic<int>>(1);
  Executor::Options options = with_threads(1);
  options.start_thread = limited_starter(allowed);
  Executor executor(options);
  Promise<void> never;
  Promise<ErrorCode> code;
  Promise<int> next;
  executor.post([&] {
    executor.post([&] { next.set_value(1); });
    try {
      never.future().wait();
    } catch (const RpcError& error) {
      code.set_value(error.code());
    }
  });
  EXPECT_EQ(code.future().wait(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(next.future().wait(), 1);
}

TEST(ExecutorBlocking, ShutdownRunsTasksForWhichNoThreadCouldBeStarted) {
  const auto allowed = std::make_shared<std::atomic<int>>(0);
  Executor::Options options = with_threads(1);
  options.start_thread = limited_starter(allowed);
  Executor executor(options);
  bool ran = false;
  EXPECT_TRUE(executor.post([&] { ran = true; }));
  EXPECT_TRUE(executor.is_stalled());
  executor.shutdown();
  EXPECT_TRUE(ran);
}

TEST(ExecutorBlocking, ManyNestedWaitsAtOnce) {
  Executor executor(with_threads(2));
  std::vector<Future<int>> all;
  for (int i = 0; i < 20; ++i) {
    Promise<int> done;
    all.push_back(done.future());
    executor.post([&executor, done, i] { done.set_value(nest(executor, i % 7)); });
  }
  const std::vector<int> depths = wait_all(all);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(depths[i], i % 7);
}

}  // namespace
}  // namespace sinew::internal
