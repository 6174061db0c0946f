#include "sinew/rpc/base/process_life.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/receive_pool.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;

/// Runs `body` in a forked child, which ends with what it returns, at once. Its status; 1000 and
/// the signal's number if one ended it, that of a time limit too.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// ---- exit()

/// Posts itself again and again.
struct Restless {
  void run() {
    if (destroyed) std::abort();
    ++runs;
    executor->post([this] { run(); });
  }
  ~Restless() {
    destroyed = true;
    // Long enough for a task that still ran to find that.
    const auto until = std::chrono::steady_clock::now() + 20ms;
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
  }
  Executor* executor = nullptr;
  std::atomic<int> runs{0};
  std::atomic<bool> destroyed{false};
};

[[noreturn]] void exit_while_tasks_run(const std::function<void(Restless&)>& begin) {
  static Restless restless;
  ProcessLife::watch();
  Executor::Options options;
  options.num_threads = 2;
  restless.executor = new Executor(options);
  restless.run();
  begin(restless);
  while (restless.runs < 100) std::this_thread::yield();
  std::exit(7);
}

TEST(ProcessLifeDeathTest, TasksStandStillWhileWhatIsStaticIsDestroyed) {
  EXPECT_EXIT(exit_while_tasks_run([](Restless&) {}), ::testing::ExitedWithCode(7), "");
}

TEST(ProcessLifeDeathTest, TimersDoToo) {
  EXPECT_EXIT(exit_while_tasks_run([](Restless& restless) {
                auto& timers = *new TimerQueue();
                static std::function<void()> again;
                again = [&restless, &timers] {
                  if (restless.destroyed) std::abort();
                  timers.run_at(Clock::TimePoint::min(), again);
                };
                again();
              }),
              ::testing::ExitedWithCode(7), "");
}

TEST(ProcessLifeDeathTest, AThreadThatWaitsGoesOnOnlyIfThereIsTime) {
  EXPECT_EXIT(exit_while_tasks_run([](Restless& restless) {
                std::thread([&restless] {
                  while (true) {
                    Promise<int> done(restless.executor);
                    restless.executor->post([done] { done.set_value(1); });
                    done.future().wait();
                    if (restless.destroyed) std::abort();
                  }
                }).detach();
              }),
              ::testing::ExitedWithCode(7), "");
}

TEST(ProcessLifeDeathTest, ATaskMayEndTheProcess) {
  EXPECT_EXIT(exit_while_tasks_run([](Restless& restless) {
                restless.executor->post([] { std::exit(7); });
                while (true) ::pause();
              }),
              ::testing::ExitedWithCode(7), "");
}

TEST(ProcessLifeDeathTest, ATaskThatNeverEndsHoldsNobodyUp) {
  EXPECT_EXIT(exit_while_tasks_run([](Restless& restless) {
                restless.executor->post([] {
                  while (true) ::pause();
                });
              }),
              ::testing::ExitedWithCode(7), "");
}

/// Shuts an executor down when it is destroyed, as programs do with workers.
struct Owner {
  ~Owner() {
    const Promise<int> done(executor);
    executor->post([done] { done.set_value(1); });
    done.future().wait();
    executor->shutdown();
    delete executor;
  }
  Executor* executor = nullptr;
};

TEST(ProcessLifeDeathTest, ADestructorOfSomethingStaticGetsItsThreadsBack) {
  EXPECT_EXIT(
      {
        static Owner owner;
        ProcessLife::watch();
        owner.executor = new Executor({});
        owner.executor->post([] {});
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(ProcessLifeDeathTest, WhatIsStartedOnceTheProcessEndsDoesNotBegin) {
  EXPECT_EXIT(
      {
        static Restless restless;
        ProcessLife::watch();
        std::thread([] {
          while (!restless.destroyed) std::this_thread::yield();
          (new Executor({}))->post([] {});
          std::abort();
        }).detach();
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

// What libraries destroy, as the thread sees it that starts something meanwhile.
std::atomic<bool> is_late_thread_there{false};
std::atomic<bool> are_libraries_destroyed{false};

// The last of all that exit() runs of this program, when its libraries' objects are gone.
__attribute__((destructor)) void end_of_libraries() {
  are_libraries_destroyed = true;
  if (!is_late_thread_there) return;
  // Long enough for the thread to get by.
  const auto until = std::chrono::steady_clock::now() + 100ms;
  while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
}

[[noreturn]] void exit_while_a_thread_starts_late() {
  std::thread([] {
    is_late_thread_there = true;
    while (!are_libraries_destroyed) std::this_thread::yield();
    (new Executor({}))->post([] {});
    std::abort();
  }).detach();
  while (!is_late_thread_there) std::this_thread::yield();
  std::exit(7);
}

TEST(ProcessLifeDeathTest, NothingIsStartedWhenLibrariesAreDestroyed) {
  EXPECT_EXIT(exit_while_a_thread_starts_late(), ::testing::ExitedWithCode(7), "");
}

TEST(ProcessLifeDeathTest, NorIsItWhereSomethingHasRunBefore) {
  EXPECT_EXIT(
      {
        ProcessLife::watch();
        Executor({}).post([] {});
        exit_while_a_thread_starts_late();
      },
      ::testing::ExitedWithCode(7), "");
}

// ---- fork()

TEST(ProcessLifeTest, ForkedChildIsToldApart) {
  ProcessLife::watch();
  const ProcessBound here;
  EXPECT_FALSE(here.is_orphan());
  EXPECT_TRUE(here.check().ok());
  EXPECT_EQ(in_child([&] {
              if (!here.is_orphan() || here.check().ok()) return 1;
              // What it makes itself is its own.
              const ProcessBound own;
              return own.is_orphan() ? 2 : 0;
            }),
            0);
  EXPECT_FALSE(here.is_orphan());
}

TEST(ProcessLifeTest, ForkedChildGetsErrorsAndDestroysWithoutAWait) {
  ProcessLife::watch();
  auto executor = std::make_unique<Executor>(Executor::Options());
  auto timers = std::make_unique<TimerQueue>();
  const Promise<int> promise(executor.get());
  const Future<int> future = promise.future();
  executor->post([] {});
  EXPECT_TRUE(ProcessLife::may_start_worker().ok());
  EXPECT_EQ(in_child([&] {
              if (ProcessLife::may_start_worker().ok()) return 1;
              if (executor->post([] {})) return 2;
              try {
                future.wait();
                return 3;
              } catch (const RpcError& error) {
                if (error.code() != ErrorCode::kFailedPrecondition) return 4;
                if (error.message().find("fork()") == std::string::npos) return 5;
              }
              // A future of the child's own is as any.
              Executor own({});
              Promise<int> its(&own);
              own.post([its] { its.set_value(6); });
              if (its.future().wait() != 6) return 6;
              executor = nullptr;
              timers = nullptr;
              return 0;
            }),
            0);
  promise.set_value(1);
  EXPECT_EQ(future.wait(), 1);
}

TEST(ProcessLifeTest, ForkedChildOfAProcessWithoutThreadsIsFree) {
  ProcessLife::watch();
  EXPECT_EQ(in_child([] { return ProcessLife::may_start_worker().ok() ? 0 : 1; }), 0);
}

TEST(ProcessLifeTest, ForkedChildrenOfAProcessThatHasUsedGrpcStartNoWorkers) {
  ProcessLife::watch();
  // In a child, as it is for good.
  EXPECT_EQ(in_child([] {
              ProcessLife::let_no_child_start_workers();
              if (!ProcessLife::may_start_worker().ok()) return 1;
              const auto may_not = [] { return ProcessLife::may_start_worker().ok() ? 1 : 0; };
              if (in_child(may_not) != 0) return 2;
              return in_child([&] { return in_child(may_not); }) == 0 ? 0 : 3;
            }),
            0);
}

TEST(ProcessLifeDeathTest, ForkedChildExitsAlthoughItsParentHasThreads) {
  ProcessLife::watch();
  Executor executor({});
  executor.post([] {});
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    std::exit(9);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

TEST(ProcessLifeTest, ForkedChildFreesReceivedMemory) {
  ProcessLife::watch();
  ReceivePool& pool = ReceivePool::of_process();
  const auto kept = pool.allocate(ReceivePool::kMinBytes);
  // Holds the lock most of the time.
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) pool.allocate(ReceivePool::kMinBytes);
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(in_child([&] {
                pool.allocate(ReceivePool::kMinBytes);
                return 0;
              }),
              0);
  }
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace sinew::internal
