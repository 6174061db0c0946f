#include "sinew/rpc/base/threads/polling_duty.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/thread_context.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/testing/eventually.h"

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;
using sinew::testing::eventually;

/// Events are functions, which are handled in the order in which they were sent.
class FakeSource final : public EventSource {
 public:
  void send(std::function<void()> event) {
    const MutexLock lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  void end() {
    const MutexLock lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  Event next(TimePoint deadline) override {
    if (deadline == TimePoint::min()) ++looks;
    EXPECT_EQ(++inside_, 1) << "two threads poll at once";
    MutexLock lock(mutex_);
    while (events_.empty() && !ended_ && std::chrono::steady_clock::now() < deadline) {
      deadline == TimePoint::max() ? changed_.wait(mutex_) : changed_.wait_until(mutex_, deadline);
    }
    Event event;
    if (!events_.empty()) {
      event.kind = Event::Kind::kSomething;
      event.tag = new std::function<void()>(std::move(events_.front()));
      events_.pop_front();
    } else if (ended_) {
      event.kind = Event::Kind::kEnd;
    }
    --inside_;
    return event;
  }
  void handle(const Event& event) override {
    EXPECT_EQ(++inside_, 1) << "an event is handled while another thread polls";
    const std::unique_ptr<std::function<void()>> run(
        static_cast<std::function<void()>*>(event.tag));
    (*run)();
    --inside_;
  }
  void interrupt() override {
    ++interrupts;
    send([] {});
  }
  bool add_thread() override { return on_add_thread(); }

  std::function<bool()> on_add_thread;
  std::atomic<int> interrupts{0};
  std::atomic<int> looks{0};

 private:
  std::atomic<int> inside_{0};
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> events_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

/// Each with the time for which whoever leads may look for events before sleeping.
class PollingDutyTest : public ::testing::TestWithParam<std::chrono::nanoseconds> {
 protected:
  PollingDutyTest() {
    Executor::Options options;
    options.num_threads = 2;
    executor_ = std::make_unique<Executor>(options);
    executor_->set_polling_duty(duty_);
    source_.on_add_thread = [this] { return add_thread(); };
    for (int i = 0; i < 2; ++i) add_thread();
  }
  ~PollingDutyTest() override {
    duty_->close();
    source_.end();
    has_no_room();
    for (std::thread& thread : pool_) thread.join();
    executor_->shutdown();
    has_core_ = true;
  }

  static std::atomic<bool>& has_core() {
    static std::atomic<bool> has{true};
    return has;
  }

  bool add_thread() {
    const MutexLock lock(pool_mutex_);
    if (!has_room_) return false;
    pool_.emplace_back([this] { duty_->serve(); });
    return true;
  }
  void has_no_room() {
    const MutexLock lock(pool_mutex_);
    has_room_ = false;
  }
  std::size_t pool_size() {
    const MutexLock lock(pool_mutex_);
    return pool_.size();
  }
  bool is_of_pool(std::thread::id id) {
    const MutexLock lock(pool_mutex_);
    return std::any_of(pool_.begin(), pool_.end(),
                       [id](const std::thread& thread) { return thread.get_id() == id; });
  }

  /// Waits for what an event brings, as a call does for its answer. Which thread handled it.
  std::thread::id call() {
    const Promise<void> answer(executor_.get());
    std::thread::id handled_by;
    source_.send([&] {
      handled_by = std::this_thread::get_id();
      answer.set_value();
    });
    answer.future().wait();
    return handled_by;
  }

  bool tasks_run_where_events_come() {
    return eventually([&] {
      const Promise<bool> same_thread(static_cast<Executor*>(nullptr));
      source_.send([&] {
        executor_->post([&, handled_by = std::this_thread::get_id()] {
          EXPECT_EQ(Executor::current(), executor_.get());
          same_thread.set_value(handled_by == std::this_thread::get_id());
        });
      });
      return same_thread.future().wait();
    });
  }

  /// Tasks that wait.
  struct Waits {
    Promise<void> all_end{static_cast<Executor*>(nullptr)};
    std::vector<Future<void>> ended;
  };
  /// Posts such until one is run by a thread of the pool.
  bool a_task_of_the_pool_waits(Waits& waits) {
    return eventually([&] {
      const Promise<bool> is_of_pool_thread(static_cast<Executor*>(nullptr));
      const Promise<void> ended(static_cast<Executor*>(nullptr));
      waits.ended.push_back(ended.future());
      source_.send([&, ended] {
        executor_->post([&, ended] {
          is_of_pool_thread.set_value(is_of_pool(std::this_thread::get_id()));
          waits.all_end.future().wait();
          ended.set_value();
        });
      });
      return is_of_pool_thread.future().wait();
    });
  }
  static void end(Waits& waits) {
    waits.all_end.set_value();
    for (const Future<void>& each : waits.ended) each.wait();
  }

  /// Calls until the calling thread polls for its answers by itself.
  bool gets_own_answers() {
    return eventually([&] {
      for (int i = 0; i < 100; ++i) {
        if (call() == std::this_thread::get_id()) return true;
      }
      return false;
    });
  }

  FakeSource source_;
  std::atomic<bool>& has_core_ = has_core();
  std::shared_ptr<PollingDuty> duty_ = std::make_shared<PollingDuty>(
      &source_, GetParam(), [](PollingDuty::TimePoint) { return has_core().load(); });
  std::unique_ptr<Executor> executor_;
  Mutex pool_mutex_;
  bool has_room_ ABSL_GUARDED_BY(pool_mutex_) = true;
  std::deque<std::thread> pool_ ABSL_GUARDED_BY(pool_mutex_);
};

TEST_P(PollingDutyTest, ThePoolLeadsWhereNobodyWaits) {
  std::atomic<int> handled_by_pool{0};
  for (int i = 0; i < 100; ++i) {
    source_.send([&] { handled_by_pool += is_of_pool(std::this_thread::get_id()) ? 1 : 0; });
  }
  EXPECT_TRUE(eventually([&] { return handled_by_pool == 100; }));
}

TEST_P(PollingDutyTest, WhoCallsAgainAndAgainPollsForTheAnswers) {
  EXPECT_TRUE(gets_own_answers());
}

TEST_P(PollingDutyTest, ThePoolTakesOverFromOneThatCallsNoMore) {
  ASSERT_TRUE(gets_own_answers());
  std::atomic<bool> handled{false};
  source_.send([&] { handled = is_of_pool(std::this_thread::get_id()); });
  EXPECT_TRUE(eventually([&] { return handled.load(); }));
}

TEST_P(PollingDutyTest, ShortTasksRunOnTheThreadThatGotTheEvent) {
  EXPECT_TRUE(tasks_run_where_events_come());
}

TEST_P(PollingDutyTest, SoTheyDoWhileTasksOfThePoolWait) {
  Waits waits;
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(a_task_of_the_pool_waits(waits));
  EXPECT_TRUE(tasks_run_where_events_come());
  end(waits);
  EXPECT_TRUE(tasks_run_where_events_come());
}

TEST_P(PollingDutyTest, ThePoolHasAThreadMoreOnlyWhereItIsShortOfOne) {
  Waits first;
  ASSERT_TRUE(a_task_of_the_pool_waits(first));
  EXPECT_TRUE(eventually([&] { return pool_size() == 3; }));
  end(first);
  for (int i = 0; i < 20; ++i) {
    Waits waits;
    ASSERT_TRUE(a_task_of_the_pool_waits(waits));
    end(waits);
  }
  EXPECT_EQ(pool_size(), 3U);
}

TEST_P(PollingDutyTest, TasksRunElsewhereWhereNoThreadCanBeAdded) {
  has_no_room();
  Waits waits;
  ASSERT_TRUE(a_task_of_the_pool_waits(waits));
  const Promise<void> ran(static_cast<Executor*>(nullptr));
  source_.send([&] { executor_->post([&] { ran.set_value(); }); });
  ran.future().wait();
  end(waits);
  EXPECT_TRUE(tasks_run_where_events_come());
}

TEST_P(PollingDutyTest, EventsGoOnWhileATaskBlocks) {
  // More often than there are threads of any kind, so that each kind is among the blocked ones.
  for (int i = 0; i < 10; ++i) {
    std::atomic<bool> open{false};
    std::atomic<bool> ended{false};
    source_.send([&] {
      executor_->post([&] {
        EXPECT_TRUE(eventually([&] { return open.load(); }));
        ended = true;
      });
    });
    source_.send([&] { open = true; });
    EXPECT_TRUE(eventually([&] { return ended.load(); }));
  }
}

TEST_P(PollingDutyTest, ATaskThatWaitsGetsItsAnswer) {
  for (int i = 0; i < 100; ++i) {
    const Promise<void> ended(static_cast<Executor*>(nullptr));
    source_.send([&] {
      executor_->post([&] {
        call();
        call();
        ended.set_value();
      });
    });
    ended.future().wait();
  }
}

TEST_P(PollingDutyTest, APollingThreadHandlesEventsAsNobody) {
  class Named final : public ThreadContext {};
  std::atomic<bool> polled{false};
  const Promise<void> ended(static_cast<Executor*>(nullptr));
  executor_->post([&] {
    const auto context = std::make_shared<Named>();
    const ThreadContext::Scope scope(context);
    EXPECT_TRUE(eventually([&] {
      for (int i = 0; i < 100 && !polled; ++i) {
        const Promise<void> answer(executor_.get());
        source_.send([&, caller = std::this_thread::get_id()] {
          EXPECT_EQ(Executor::current(), nullptr);
          EXPECT_EQ(ThreadContext::current(), nullptr);
          polled = caller == std::this_thread::get_id();
          answer.set_value();
        });
        answer.future().wait();
        EXPECT_EQ(Executor::current(), executor_.get());
        EXPECT_EQ(ThreadContext::current(), context);
      }
      return polled.load();
    }));
    ended.set_value();
  });
  ended.future().wait();
}

TEST_P(PollingDutyTest, WhatComesFromElsewhereEndsAWaitThatPolls) {
  EXPECT_TRUE(eventually([&] {
    if (!gets_own_answers()) return false;
    const Promise<void> answer(executor_.get());
    std::thread other([&] {
      std::this_thread::yield();
      answer.set_value();
    });
    answer.future().wait();
    other.join();
    return source_.interrupts > 0;
  }));
}

TEST_P(PollingDutyTest, AWaitThatPollsEndsAtItsDeadline) {
  ASSERT_TRUE(gets_own_answers());
  const Promise<void> never(executor_.get());
  EXPECT_THROW(never.future().wait_for(20ms), RpcError);
  EXPECT_THROW(never.future().wait_for(0ms), RpcError);
  EXPECT_NE(call(), std::thread::id());
}

TEST_P(PollingDutyTest, CloseLeavesWaitsToThePool) {
  ASSERT_TRUE(gets_own_answers());
  const Promise<void> answer(executor_.get());
  std::thread closer([&] {
    duty_->close();
    source_.send([&] {
      EXPECT_TRUE(is_of_pool(std::this_thread::get_id()));
      answer.set_value();
    });
  });
  answer.future().wait();
  closer.join();
  EXPECT_TRUE(is_of_pool(call()));
}

TEST_P(PollingDutyTest, ManyThreadsCallAtOnce) {
  constexpr int kThreads = 6;
  constexpr int kCalls = 500;
  std::atomic<int> answered{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < kThreads; ++i) {
    callers.emplace_back([&, i] {
      for (int n = 0; n < kCalls; ++n) {
        // Some answers take a task, as those with continuations do.
        if (n % 5 == i) {
          const Promise<void> answer(executor_.get());
          source_.send([&] { executor_->post([&] { answer.set_value(); }); });
          answer.future().wait();
        } else {
          call();
        }
        ++answered;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(answered, kThreads * kCalls);
}

INSTANTIATE_TEST_SUITE_P(MaxPoll, PollingDutyTest, ::testing::Values(0us, 100us),
                         [](const auto& test) { return test.param == 0us ? "Sleeps" : "MayPoll"; });

using PollingBeforeSleeping = PollingDutyTest;

TEST_P(PollingBeforeSleeping, LooksForWhatComesSoon) {
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 100; ++i) call();
    const PollingDuty::Stats stats = duty_->stats();
    // On one core none may ever pay.
    return source_.looks > 0 && stats.polls_paid + stats.polls_in_vain > 0 && stats.polled > 0ns;
  }));
}

TEST_P(PollingBeforeSleeping, NeedsACore) {
  const auto polls = [&] { return duty_->stats().polls_paid + duty_->stats().polls_in_vain; };
  const auto polls_again = [&] {
    const std::int64_t before = polls();
    return eventually([&] {
      for (int i = 0; i < 100; ++i) call();
      return polls() > before + 20;
    });
  };
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(polls_again());
  const auto time = std::chrono::steady_clock::now() - begun;
  has_core_ = false;
  // Those that have begun.
  for (int i = 0; i < 10; ++i) call();
  const std::int64_t before = polls();
  // For long enough that it would have polled: first waits after a pause do.
  const auto end = std::chrono::steady_clock::now() + 2 * time;
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 100; ++i) call();
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_LE(polls(), before + 2);
  has_core_ = true;
  EXPECT_TRUE(polls_again());
}

INSTANTIATE_TEST_SUITE_P(MaxPoll, PollingBeforeSleeping, ::testing::Values(1ms));

// What posts no task: after tasks the pool's leader looks for more that is there already.
using SleepingAtOnce = PollingDutyTest;

TEST_P(SleepingAtOnce, NeverLooks) {
  ASSERT_TRUE(gets_own_answers());
  for (int i = 0; i < 1000; ++i) call();
  EXPECT_EQ(source_.looks, 0);
  EXPECT_EQ(duty_->stats().polls_paid + duty_->stats().polls_in_vain, 0);
}

INSTANTIATE_TEST_SUITE_P(MaxPoll, SleepingAtOnce, ::testing::Values(0us));

}  // namespace
}  // namespace sinew::internal
