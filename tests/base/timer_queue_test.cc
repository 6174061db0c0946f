#include "sinew/rpc/base/threads/timer_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "sinew/rpc/base/threads/timer_heap.h"
#include "sinew/tests/support/manual_clock.h"

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;
using TimePoint = Clock::TimePoint;

TimePoint at(int ms) { return TimePoint(std::chrono::milliseconds(ms)); }

// ---- which one is due when

TEST(TimerHeapTest, PopsInOrderOfTimeThenOfSetting) {
  TimerHeap heap;
  std::vector<int> order;
  const auto push = [&](int n) { return [&order, n] { order.push_back(n); }; };
  heap.add(at(30), push(4));
  heap.add(at(10), push(1));
  heap.add(at(20), push(2));
  heap.add(at(20), push(3));
  EXPECT_EQ(heap.next_due(), at(10));
  EXPECT_EQ(heap.pop_due(at(9)), nullptr);
  while (Task task = heap.pop_due(at(20))) std::move(task)();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(heap.size(), 1u);
  EXPECT_EQ(heap.next_due(), at(30));
  std::move(heap).pop_due(TimePoint::max())();
  EXPECT_EQ(heap.next_due(), TimePoint::max());
  EXPECT_EQ(heap.pop_due(TimePoint::max()), nullptr);
}

TEST(TimerHeapTest, RemovesOnce) {
  TimerHeap heap;
  const auto first = heap.add(at(1), [] {});
  const auto second = heap.add(at(2), [] {});
  EXPECT_NE(first, 0u);
  EXPECT_NE(heap.remove(first), nullptr);
  EXPECT_EQ(heap.remove(first), nullptr);
  EXPECT_EQ(heap.remove(12345), nullptr);
  EXPECT_EQ(heap.next_due(), at(2));
  EXPECT_NE(heap.pop_due(at(2)), nullptr);
  EXPECT_EQ(heap.remove(second), nullptr);
}

TEST(TimerHeapTest, GarbageIsBounded) {
  TimerHeap heap;
  std::vector<TimerHeap::TimerId> kept;
  for (int i = 0; i < 100; ++i) kept.push_back(heap.add(at(1000000 + i), [] {}));
  for (int i = 0; i < 100000; ++i) heap.remove(heap.add(at(1000 + i), [] {}));
  EXPECT_EQ(heap.size(), 100u);
  EXPECT_LE(heap.heap_size(), 2u * 100 + 1);
  for (const auto id : kept) EXPECT_NE(heap.remove(id), nullptr);
  EXPECT_LE(heap.heap_size(), 65u);
  EXPECT_EQ(heap.next_due(), TimePoint::max());
  EXPECT_EQ(heap.heap_size(), 0u);
}

TEST(TimerHeapTest, AgreesWithASortedMap) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  TimerHeap heap;
  std::map<std::pair<TimePoint, TimerHeap::TimerId>, int> model;
  int ran = -1;
  int now = 0;
  for (int step = 0; step < 20000; ++step) {
    const unsigned dice = random() % 10;
    if (dice < 5) {
      const TimePoint when = at(now + static_cast<int>(random() % 50));
      const auto id = heap.add(when, [&ran, step] { ran = step; });
      model[{when, id}] = step;
    } else if (dice < 8 && !model.empty()) {
      auto victim = std::next(model.begin(), random() % model.size());
      ASSERT_NE(heap.remove(victim->first.second), nullptr);
      model.erase(victim);
    } else {
      now += static_cast<int>(random() % 4);
      while (!model.empty() && model.begin()->first.first <= at(now)) {
        Task task = heap.pop_due(at(now));
        ASSERT_NE(task, nullptr);
        std::move(task)();
        ASSERT_EQ(ran, model.begin()->second);
        model.erase(model.begin());
      }
      ASSERT_EQ(heap.pop_due(at(now)), nullptr);
    }
    ASSERT_EQ(heap.size(), model.size());
    ASSERT_EQ(heap.next_due(), model.empty() ? TimePoint::max() : model.begin()->first.first);
  }
}

// ---- the thread

TEST(TimerQueueTest, RunsWhatIsDueInOrder) {
  TimerQueue timers;
  std::vector<int> order;
  std::promise<void> done;
  const TimePoint now = Clock::system().now();
  timers.run_at(now + 3ms, [&] {
    order.push_back(3);
    EXPECT_GE(Clock::system().now(), now + 3ms);
    done.set_value();
  });
  timers.run_at(now + 2ms, [&] { order.push_back(2); });
  timers.run_at(now + 1ms, [&] { order.push_back(1); });
  done.get_future().wait();
  // The first may be due before the others are set; then it runs first all the same.
  EXPECT_EQ(order.back(), 3);
  EXPECT_EQ(timers.size(), 3 - order.size());
}

TEST(TimerQueueTest, AnEarlierTimerWakesTheThread) {
  TimerQueue timers;
  timers.run_at(Clock::system().now() + 24h, [] { FAIL(); });
  std::promise<void> done;
  timers.run_at(Clock::system().now(), [&] { done.set_value(); });
  done.get_future().wait();
  EXPECT_EQ(timers.size(), 1u);
}

TEST(TimerQueueTest, TimesInThePastAndBeyondTheEndOfTime) {
  TimerQueue timers;
  std::promise<void> done;
  const auto never = timers.run_at(TimePoint::max(), [] { FAIL(); });
  timers.run_at(TimePoint::min(), [&] { done.set_value(); });
  done.get_future().wait();
  EXPECT_TRUE(timers.cancel(never));
}

TEST(TimerQueueTest, CancelsWhatHasNotBegun) {
  TimerQueue timers;
  auto held = std::make_shared<int>(1);
  const auto id = timers.run_at(Clock::system().now() + 24h, [held] { FAIL(); });
  EXPECT_TRUE(timers.cancel(id));
  EXPECT_EQ(held.use_count(), 1) << "a cancelled callback is destroyed at once";
  EXPECT_FALSE(timers.cancel(id));
  EXPECT_FALSE(timers.cancel(0));
}

TEST(TimerQueueTest, ACallbackThatRunsCannotBeCancelledAndDoesNotHoldUpTheCaller) {
  TimerQueue timers;
  std::promise<void> running;
  std::promise<void> gate;
  const auto id = timers.run_at(Clock::system().now(), [&] {
    running.set_value();
    gate.get_future().wait();
  });
  running.get_future().wait();
  std::promise<void> next;
  const auto waiting = timers.run_at(Clock::system().now(), [] { FAIL(); });
  timers.run_at(Clock::system().now(), [&] { next.set_value(); });
  EXPECT_FALSE(timers.cancel(id));
  EXPECT_TRUE(timers.cancel(waiting)) << "due, but it has not begun";
  gate.set_value();
  next.get_future().wait();
}

TEST(TimerQueueTest, NothingRunsAfterStop) {
  TimerQueue timers;
  std::promise<void> running;
  std::atomic<bool> ended{false};
  timers.run_at(Clock::system().now(), [&] {
    running.set_value();
    std::this_thread::sleep_for(50ms);
    ended = true;
  });
  running.get_future().wait();
  timers.run_at(Clock::system().now(), [] { FAIL(); });
  timers.stop();
  EXPECT_TRUE(ended) << "it waits for what runs";
  timers.run_at(Clock::system().now(), [] { FAIL(); });
  timers.stop();
}

TEST(TimerQueueTest, CallbacksMaySetAndCancel) {
  TimerQueue timers;
  std::promise<void> done;
  const auto victim = timers.run_at(Clock::system().now() + 24h, [] { FAIL(); });
  timers.run_at(Clock::system().now(), [&] {
    EXPECT_TRUE(timers.cancel(victim));
    timers.run_at(Clock::system().now(), [&] { done.set_value(); });
  });
  done.get_future().wait();
}

TEST(TimerQueueTest, DestroysWhatIsNotDueUnrun) {
  auto held = std::make_shared<int>(1);
  {
    TimerQueue timers;
    timers.run_at(Clock::system().now() + 24h, [held] { FAIL(); });
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(TimerQueueTest, EachCallbackIsEitherRunOrCancelled) {
  constexpr int kThreads = 3;
  constexpr int kEach = 2000;
  std::atomic<int> ran{0};
  std::atomic<int> cancelled{0};
  TimerQueue timers;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < kEach; ++i) {
        const auto when = Clock::system().now() + std::chrono::microseconds(random() % 200);
        const auto id = timers.run_at(when, [&] { ++ran; });
        if (random() % 2 == 0 && timers.cancel(id)) ++cancelled;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // All that is left is due before this one.
  std::promise<void> last;
  timers.run_at(Clock::system().now() + 1ms, [&] { last.set_value(); });
  last.get_future().wait();
  EXPECT_EQ(ran + cancelled, kThreads * kEach);
}

// ---- the clock of the tests

TEST(ManualClockTest, RunsTimersAtTheirTimes) {
  testing::ManualClock clock;
  const TimePoint start = clock.now();
  std::vector<std::pair<int, TimePoint>> seen;
  clock.run_at(start + 20ms, [&] { seen.emplace_back(2, clock.now()); });
  clock.run_at(start + 10ms, [&] {
    seen.emplace_back(1, clock.now());
    clock.run_at(clock.now() + 5ms, [&] { seen.emplace_back(3, clock.now()); });
  });
  const auto cancelled = clock.run_at(start + 1ms, [] { FAIL(); });
  EXPECT_TRUE(clock.cancel(cancelled));
  clock.advance(0ms);
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(clock.now(), start);
  clock.advance(100ms);
  const std::vector<std::pair<int, TimePoint>> expected{
      {1, start + 10ms}, {3, start + 15ms}, {2, start + 20ms}};
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(clock.now(), start + 100ms);
  EXPECT_EQ(clock.num_timers(), 0u);
}

}  // namespace
}  // namespace sinew::internal
