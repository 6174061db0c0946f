// Continuations and other callbacks of futures: what they get, their order, where they run.

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "sinew/tests/base/future_test_support.h"

namespace sinew {
namespace {

// ---- continuations (FUT-04, FUT-06, FUT-07)

TEST_P(FutureTest, ThenWorksBeforeAndAfterCompletion) {
  auto promise = make<int>();
  const Future<int> future = promise.future();
  const Future<int> before = future.then([](int x) { return x + 1; });
  promise.set_value(1);
  const Future<std::string> after = future.then([](const int& x) { return std::to_string(x); });
  EXPECT_EQ(before.wait(), 2);
  EXPECT_EQ(after.wait(), "1");
  EXPECT_EQ(future.wait(), 1);
}

TEST_P(FutureTest, ChainsOfTwentyContinuations) {
  auto promise = make<int>();
  Future<int> last = promise.future();
  for (int i = 0; i < 20; ++i) last = last.then([](int x) { return x + 1; });
  promise.set_value(0);
  EXPECT_EQ(last.wait(), 20);
}

TEST_P(FutureTest, ManyContinuationsOfOneFuture) {
  auto promise = make<int>();
  const Future<int> future = promise.future();
  std::vector<Future<int>> children;
  for (int i = 0; i < 10; ++i) children.push_back(future.then([i](int x) { return x + i; }));
  promise.set_value(100);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(children[i].wait(), 100 + i);
  EXPECT_EQ(future.wait(), 100);
}

TEST_P(FutureTest, AnErrorSkipsValueContinuationsAndReachesTheOthers) {
  auto promise = make<int>();
  std::atomic<int> ran{0};
  const Future<void> skipped = promise.future().then([&](int) { ++ran; });
  const Future<int> further = skipped.then([&] { return ++ran; });
  const Future<std::string> seen =
      promise.future().then([](Future<int> parent) { return text_of(parent.error()); });
  const Future<int> touched =
      promise.future().then([](Future<int> parent) { return parent.wait(); });
  promise.set_error(boom("the cause"));
  EXPECT_THROW(skipped.wait(), std::invalid_argument);
  EXPECT_THROW(further.wait(), std::invalid_argument);
  EXPECT_EQ(seen.wait(), "the cause");
  EXPECT_THROW(touched.wait(), std::invalid_argument);
  EXPECT_EQ(text_of(touched.error()), "the cause");
  EXPECT_EQ(ran, 0);
}

TEST_P(FutureTest, WhatAContinuationThrowsFailsItsChild) {
  auto promise = make<int>();
  const Future<int> child =
      promise.future().then([](int) -> int { throw std::out_of_range("no"); });
  const Future<void> nothing = promise.future().then([](int) { throw 42; });
  promise.set_value(1);
  EXPECT_THROW(child.wait(), std::out_of_range);
  EXPECT_THROW(nothing.wait(), int);
  EXPECT_EQ(promise.future().wait(), 1);
}

TEST_P(FutureTest, AFutureOfAFutureIsFlattened) {
  auto outer = make<int>();
  auto inner = make<std::unique_ptr<int>>();
  Future<std::unique_ptr<int>> child = outer.future().then([&](int) { return inner.future(); });
  const Future<void> failing =
      outer.future().then([](int) { return make_failed_future<void>(boom("inner")); });
  const Future<int> invalid = outer.future().then([](int) { return Future<int>(); });
  outer.set_value(1);
  EXPECT_FALSE(child.done());
  inner.set_value(std::make_unique<int>(9));
  EXPECT_EQ(*child.take(), 9);
  EXPECT_THROW(failing.wait(), std::invalid_argument);
  EXPECT_EQ(error_of([&] { invalid.wait(); }).code, ErrorCode::kInvalidArgument);
}

TEST_P(FutureTest, ANullContinuationIsRefused) {
  const auto future = make<int>().future();
  int (*null_function)(int) = nullptr;
  for (const ErrorCode code : {error_of([&] { future.then(std::function<int(int)>()); }).code,
                               error_of([&] { future.then(null_function); }).code,
                               error_of([&] { future.on_done(std::function<void()>()); }).code}) {
    EXPECT_EQ(code, ErrorCode::kInvalidArgument);
  }
}

int plus_one(int x) { return x + 1; }

TEST_P(FutureTest, TakesEveryKindOfFunction) {
  auto promise = make<NoDefault>();
  const Future<int> member = promise.future().then(&NoDefault::value);
  const Future<int> function = member.then(plus_one).then(&plus_one);
  const Future<int> move_only =
      function.then([p = std::make_unique<int>(10)](int x) { return x + *p; });
  promise.set_value(NoDefault(1));
  EXPECT_EQ(member.wait(), 1);
  EXPECT_EQ(function.wait(), 3);
  EXPECT_EQ(move_only.wait(), 13);
}

TEST_P(FutureTest, CallbacksRunInTheOrderOfRegistration) {
  auto promise = make<int>();
  const Future<int> future = promise.future();
  auto last = make<void>();
  std::vector<int> order;
  future.on_done([&](const Future<int>& self) { order.push_back(self.wait()); });
  future.then([&](int) {
    order.push_back(1);
    // Registered while a callback runs: it comes after those that are registered already.
    future.on_done([&] {
      order.push_back(5);
      future.then([&](int) {
        order.push_back(6);
        last.set_value();
      });
    });
  });
  future.on_done([&] { order.push_back(2); });
  future.then([&](Future<int>) { order.push_back(3); });
  future.on_done([&] { order.push_back(4); });
  promise.set_value(0);
  last.future().wait();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6}));
}

TEST_P(FutureTest, OrderHoldsWhileManyThreadsRegister) {
  constexpr int kThreads = 3;
  constexpr int kEach = 300;
  auto promise = make<int>();
  const Future<int> future = promise.future();
  std::array<std::vector<int>, kThreads> seen;
  std::atomic<int> running{0};
  std::atomic<bool> overlapped{false};
  std::vector<Future<void>> all(kThreads * kEach);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        if (t == 0 && i == kEach / 2) promise.set_value(1);
        all[t * kEach + i] = future.then([&, t, i](int) {
          if (running.fetch_add(1) != 0) overlapped = true;
          seen[t].push_back(i);
          running.fetch_sub(1);
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  wait_all(all);
  EXPECT_FALSE(overlapped);
  for (const std::vector<int>& one : seen) {
    ASSERT_EQ(one.size(), static_cast<std::size_t>(kEach));
    EXPECT_TRUE(std::is_sorted(one.begin(), one.end()));
  }
}

TEST_P(FutureTest, ADoneCallbacksErrorIsLoggedAndDropped) {
  ::testing::internal::CaptureStderr();
  auto promise = make<int>();
  std::atomic<bool> next_ran{false};
  promise.future().on_done(
      [](const Future<int>&) { throw std::runtime_error("callback\x1b broke"); });
  promise.future().on_done([] { throw 1; });
  promise.future().on_done([&] { next_ran = true; });
  const Future<void> last = promise.future().then([](int) {});
  promise.set_value(1);
  last.wait();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(next_ran);
  EXPECT_NE(log.find("std::runtime_error: callback\\x1b broke"), std::string::npos) << log;
  EXPECT_NE(log.find("int"), std::string::npos) << log;
}

TEST_P(FutureTest, ACallbackMayDropTheLastFuture) {
  auto promise = std::make_unique<Promise<int>>(make<int>());
  auto future = std::make_unique<Future<int>>(promise->future());
  auto done = make<void>();
  future->on_done([&] {
    future.reset();
    promise.reset();
  });
  future->on_done([&] { done.set_value(); });
  // Through a copy: `promise` itself dies while it is being completed.
  Promise<int>(*promise).set_value(1);
  done.future().wait();
  EXPECT_EQ(promise, nullptr);
}

TEST_P(FutureTest, ALongLoopOfFuturesNeedsNoStack) {
  if (!GetParam()) GTEST_SKIP() << "inline callbacks nest by definition";
  constexpr int kSteps = 20000;
  std::function<Future<int>(int)> loop = [&](int step) -> Future<int> {
    auto tick = make<int>();
    tick.set_value(step + 1);
    return tick.future().then(
        [&](int next) { return next == kSteps ? make_ready_future(next) : loop(next); });
  };
  EXPECT_EQ(loop(0).wait(), kSteps);
}

// ---- where callbacks run, and what they may do (FUT-09)

TEST(FutureOnExecutor, CallbacksNeverRunInTheCallThatRegistersOrCompletes) {
  Executor executor({});
  Promise<int> promise(&executor);
  const auto thread_of = [](int) { return std::this_thread::get_id(); };
  const auto before = promise.future().then(thread_of);
  promise.set_value(1);
  const auto after = promise.future().then(thread_of);
  EXPECT_NE(before.wait(), std::this_thread::get_id());
  EXPECT_NE(after.wait(), std::this_thread::get_id());
}

TEST(FutureOnExecutor, APromiseMadeInATaskBelongsToItsExecutor) {
  Executor executor({});
  Promise<Future<Executor*>> made;
  executor.post(
      [&] { made.set_value(make_ready_future().then([] { return Executor::current(); })); });
  EXPECT_EQ(made.future().wait().wait(), &executor);
  EXPECT_EQ(made.future().wait().then([](Executor*) { return Executor::current(); }).wait(),
            &executor);
}

TEST(FutureOnExecutor, CallbacksMayBlockAndCompleteOthersOnASingleThread) {
  Executor::Options options;
  options.num_threads = 1;
  Executor executor(options);
  Promise<int> first(&executor);
  Promise<int> second(&executor);
  const Future<int> waits = first.future().then([&](int x) { return x + second.future().wait(); });
  const Future<void> completes = first.future().then([&](int) { second.set_value(10); });
  first.set_value(1);
  EXPECT_EQ(waits.wait(), 11);
  completes.wait();
}

TEST_P(FutureTest, ACallbackMayWaitForALaterCallbackOfTheSameFuture) {
  auto promise = make<int>();
  const Future<int> future = promise.future();
  Future<int> later;
  const Future<int> first = future.then(
      [&](int x) { return x + later.wait() + future.then([](int y) { return 100 * y; }).wait(); });
  later = future.then([](int x) { return 10 * x; });
  promise.set_value(1);
  EXPECT_EQ(first.wait(), 111);
}

TEST(FutureOnExecutor, AShutDownExecutorLosesNoCallback) {
  Executor executor({});
  Promise<int> early(&executor);
  Promise<int> late(&executor);
  std::promise<void> gate;
  std::shared_future<void> opened = gate.get_future().share();
  const Future<int> pending = early.future().then([opened](int x) {
    opened.wait();
    return x + 1;
  });
  const Future<int> after = late.future().then([](int x) { return x + 2; });
  early.set_value(1);
  std::thread closer([&] { executor.shutdown(); });
  gate.set_value();
  closer.join();
  EXPECT_TRUE(pending.done());
  EXPECT_EQ(pending.wait(), 2);
  late.set_value(1);
  EXPECT_EQ(after.wait(), 3);
  EXPECT_EQ(after.then([](int x) { return x + 1; }).wait(), 4);
}

TEST(FutureOnExecutor, FuturesOutliveTheExecutor) {
  auto executor = std::make_unique<Executor>(Executor::Options());
  Promise<int> promise(executor.get());
  const Future<int> child = promise.future().then([](int x) { return x + 1; });
  executor.reset();
  promise.set_value(1);
  EXPECT_EQ(child.wait(), 2);
}

TEST(FutureOnExecutor, CompletionRacesWithShutdown) {
  for (int round = 0; round < 100; ++round) {
    Executor executor({});
    Promise<int> promise(&executor);
    const Future<int> child = promise.future().then([](int x) { return x + 1; });
    std::thread completer([promise] { promise.set_value(1); });
    executor.shutdown();
    EXPECT_EQ(child.wait(), 2);
    completer.join();
  }
}

}  // namespace
}  // namespace sinew
