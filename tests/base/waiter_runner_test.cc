#include "sinew/rpc/base/threads/waiter_runner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/testing/eventually.h"

namespace sinew::internal {
namespace {

using sinew::testing::eventually;

class WaiterRunnerTest : public ::testing::Test {
 protected:
  void complete() {
    done_.set_value();
    runner_->notify();
  }

  Executor executor_{Executor::Options()};
  const std::shared_ptr<WaiterRunner> runner_ = std::make_shared<WaiterRunner>(executor_.runner());
  Promise<void> done_{&executor_};
};

TEST_F(WaiterRunnerTest, AnExecutorRunsTasksWhileNobodyWaits) {
  Promise<std::thread::id> ran_on;
  ASSERT_TRUE(runner_->post([&] { ran_on.set_value(std::this_thread::get_id()); }));
  EXPECT_NE(ran_on.future().wait(), std::this_thread::get_id());
}

TEST_F(WaiterRunnerTest, WhoWaitsRunsWhatIsPosted) {
  std::vector<std::thread::id> ran_on;
  std::thread other([&] {
    // The first one that the waiting thread runs says that there is one.
    EXPECT_TRUE(eventually([&] {
      std::atomic<bool> on_executor{false};
      Promise<void> ran;
      runner_->post([&] {
        on_executor = Executor::current() != nullptr;
        ran.set_value();
      });
      ran.future().wait();
      return !on_executor;
    }));
    for (int i = 0; i < 10; ++i) {
      runner_->post([&] { ran_on.push_back(std::this_thread::get_id()); });
    }
    runner_->post([&] { complete(); });
  });
  runner_->wait(done_.future());
  other.join();
  EXPECT_EQ(ran_on, std::vector<std::thread::id>(10, std::this_thread::get_id()));
}

TEST_F(WaiterRunnerTest, WaitingEndsWithoutATask) {
  std::thread other([&] { complete(); });
  runner_->wait(done_.future());
  other.join();
  runner_->wait(done_.future());
}

TEST_F(WaiterRunnerTest, ThrowsTheError) {
  std::thread other([&] {
    done_.set_error(std::make_exception_ptr(std::runtime_error("no luck")));
    runner_->notify();
  });
  EXPECT_THROW(runner_->wait(done_.future()), std::runtime_error);
  other.join();
}

TEST_F(WaiterRunnerTest, LeavesToTheExecutorWhatComesAfterTheEnd) {
  Promise<bool> on_executor;
  std::thread other([&] {
    runner_->post([&] {
      complete();
      runner_->post([&] { on_executor.set_value(Executor::current() != nullptr); });
    });
  });
  runner_->wait(done_.future());
  EXPECT_TRUE(on_executor.future().wait());
  other.join();
}

TEST_F(WaiterRunnerTest, NoTaskIsLostAndNoEndMissed) {
  static constexpr int kTasks = 20;
  for (int round = 0; round < 500; ++round) {
    std::atomic<int> runs{0};
    const Promise<void> done(&executor_);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 2; ++thread) {
      threads.emplace_back([&] {
        for (int i = 0; i < kTasks; ++i) {
          // The one that completes `done` may be on the executor, and behind its waiter's back.
          runner_->post([&runs, done, runner = runner_] {
            if (++runs < 2 * kTasks) return;
            done.set_value();
            runner->notify();
          });
        }
      });
    }
    runner_->wait(done.future());
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(runs, 2 * kTasks);
  }
}

}  // namespace
}  // namespace sinew::internal
