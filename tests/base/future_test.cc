#include "sinew/rpc/base/future.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "sinew/rpc/base/executor.h"

namespace sinew {
namespace {

using internal::Executor;
using namespace std::chrono_literals;

struct NoDefault {
  explicit NoDefault(int v) : value(v) {}
  int value;
};

std::exception_ptr boom(const std::string& text = "boom") {
  return std::make_exception_ptr(std::invalid_argument(text));
}

template <class F>
ErrorInfo error_of(F f) {
  try {
    f();
  } catch (const RpcError& error) {
    return error.info();
  }
  ADD_FAILURE() << "no RpcError was thrown";
  return {};
}

std::string text_of(const std::exception_ptr& error) {
  return error == nullptr ? "" : internal::describe(error).remote_message;
}

// Each test that takes the fixture runs with callbacks inline and with callbacks on an executor.
class FutureTest : public ::testing::TestWithParam<bool> {
 protected:
  FutureTest() {
    if (GetParam()) executor_.emplace(Executor::Options());
  }
  template <class T>
  Promise<T> make() {
    return Promise<T>(executor_ ? &*executor_ : nullptr);
  }
  std::optional<Executor> executor_;
};

INSTANTIATE_TEST_SUITE_P(, FutureTest, ::testing::Bool(), [](const auto& run) {
  return std::string(run.param ? "OnExecutor" : "Inline");
});

// ---- completion and reading (FUT-01, FUT-03)

TEST_P(FutureTest, IsDoneOnceTheValueIsSet) {
  auto promise = make<int>();
  const Future<int> future = promise.future();
  EXPECT_TRUE(future.valid());
  EXPECT_FALSE(future.done());
  promise.set_value(7);
  EXPECT_TRUE(future.done());
  EXPECT_EQ(future.wait(), 7);
  EXPECT_EQ(future.wait(), 7);
  EXPECT_EQ(future.value(), 7);
  EXPECT_EQ(future.error(), nullptr);
}

TEST_P(FutureTest, WakesEveryWaitingThread) {
  auto promise = make<int>();
  std::atomic<int> sum{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 10; ++i) {
    waiters.emplace_back([&sum, future = promise.future()] { sum += future.wait(); });
  }
  promise.set_value(3);
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(sum, 30);
}

TEST_P(FutureTest, RethrowsTheOriginalErrorToEveryThreadEachTime) {
  auto promise = make<int>();
  const Future<int> future = promise.future();
  std::atomic<int> caught{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&caught, future] {
      for (int round = 0; round < 2; ++round) {
        try {
          future.wait();
        } catch (const std::invalid_argument& error) {
          if (std::string(error.what()) == "boom") ++caught;
        }
      }
    });
  }
  promise.set_error(boom());
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(caught, 8);
  EXPECT_TRUE(future.done());
  EXPECT_THROW(future.value(), std::invalid_argument);
  EXPECT_EQ(text_of(future.error()), "boom");
}

TEST_P(FutureTest, HoldsVoidMoveOnlyAndNonDefaultConstructibleValues) {
  auto nothing = make<void>();
  nothing.set_value();
  static_assert(std::is_void_v<decltype(nothing.future().wait())>);
  EXPECT_NO_THROW(nothing.future().wait());

  auto owned = make<std::unique_ptr<int>>();
  owned.set_value(std::make_unique<int>(5));
  EXPECT_EQ(*owned.future().wait(), 5);

  auto no_default = make<NoDefault>();
  no_default.set_value(NoDefault(6));
  EXPECT_EQ(no_default.future().wait().value, 6);
}

TEST(FutureBasics, AnInvalidFutureRefusesEverything) {
  Future<int> none;
  EXPECT_FALSE(none.valid());
  const auto check = [](auto f) { EXPECT_EQ(error_of(f).code, ErrorCode::kFailedPrecondition); };
  check([&] { (void)none.done(); });
  check([&] { none.wait(); });
  check([&] { none.wait_for(1s); });
  check([&] { none.value(); });
  check([&] { (void)none.error(); });
  check([&] { none.take(); });
  check([&] { none.then([](int) {}); });
  check([&] { none.on_done([] {}); });
  Promise<int> moved_from;
  const Promise<int> other = std::move(moved_from);
  check([&] { (void)moved_from.future(); });
  check([&] { moved_from.set_value(1); });
}

TEST(FutureBasics, ValueOfAPendingFutureIsAnErrorAndWaitForEndsInTime) {
  Promise<int> promise;
  const Future<int> future = promise.future();
  EXPECT_EQ(error_of([&] { future.value(); }).code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(future.error(), nullptr);
  for (const auto timeout : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(-1s),
                             std::chrono::nanoseconds(1ms), std::chrono::nanoseconds::min()}) {
    const ErrorInfo error = error_of([&] { future.wait_for(timeout); });
    EXPECT_EQ(error.code, ErrorCode::kDeadlineExceeded);
    EXPECT_NE(error.message.find("waited "), std::string::npos) << error.message;
  }
  promise.set_value(1);
  EXPECT_EQ(future.wait_for(0s), 1);
  EXPECT_EQ(future.wait_for(std::chrono::nanoseconds::max()), 1);
}

TEST(FutureBasics, WaitForWithoutEndIsAWait) {
  Promise<int> promise;
  std::thread completer([promise] { promise.set_value(1); });
  EXPECT_EQ(promise.future().wait_for(std::chrono::nanoseconds::max()), 1);
  completer.join();
}

TEST_P(FutureTest, CanBeCompletedOnlyOnce) {
  auto promise = make<int>();
  promise.set_value(1);
  const ErrorInfo twice = error_of([&] { promise.set_value(2); });
  EXPECT_EQ(twice.code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(twice.message, "a future can be completed only once");
  EXPECT_EQ(error_of([&] { promise.set_error(boom()); }).code, ErrorCode::kFailedPrecondition);
  EXPECT_FALSE(promise.try_set_value(2));
  EXPECT_FALSE(promise.try_set_error(boom()));
  EXPECT_EQ(promise.future().wait(), 1);

  auto failed = make<int>();
  failed.set_error(RpcError(ErrorCode::kUnavailable, "gone"));
  EXPECT_FALSE(failed.try_set_value(1));
  EXPECT_EQ(error_of([&] { failed.future().wait(); }).code, ErrorCode::kUnavailable);
}

TEST_P(FutureTest, OneOfManyCompletersWins) {
  for (int round = 0; round < 200; ++round) {
    auto promise = make<int>();
    std::atomic<int> wins{0};
    std::atomic<int> winner{-1};
    std::vector<std::thread> completers;
    for (int i = 0; i < 3; ++i) {
      completers.emplace_back([&, i] {
        if (promise.try_set_value(i)) {
          ++wins;
          winner = i;
        }
      });
    }
    const int value = promise.future().wait();
    for (std::thread& completer : completers) completer.join();
    EXPECT_EQ(wins, 1);
    EXPECT_EQ(winner, value);
  }
}

TEST(FutureBasics, ANullErrorIsRefused) {
  Promise<int> promise;
  EXPECT_EQ(error_of([&] { promise.set_error(nullptr); }).code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(promise.future().done());
}

TEST_P(FutureTest, ABrokenPromiseFailsTheFuture) {
  Future<int> future;
  {
    auto promise = make<int>();
    future = promise.future();
    {
      const auto copy = promise;
      auto moved = std::move(promise);
      EXPECT_FALSE(future.done());
    }
    EXPECT_TRUE(future.done());
  }
  const ErrorInfo error = error_of([&] { future.wait(); });
  EXPECT_EQ(error.code, ErrorCode::kCancelled);
  EXPECT_NE(error.message.find("broken promise"), std::string::npos) << error.message;
}

TEST(FutureBasics, AThrowingMoveBecomesTheError) {
  struct Thrower {
    Thrower() = default;
    Thrower(Thrower&& other) : moves(other.moves + 1) {
      if (moves > 2) throw std::length_error("moved too often");
    }
    int moves = 0;
  };
  Promise<Thrower> promise;
  promise.set_value(Thrower());
  EXPECT_THROW(promise.future().wait(), std::length_error);
}

TEST(FutureBasics, AThreadThatWaitsMayDestroyThePromise) {
  for (int round = 0; round < 500; ++round) {
    auto promise = std::make_unique<Promise<int>>();
    std::thread completer([&p = *promise] { p.set_value(1); });
    promise->future().wait();
    promise.reset();
    completer.join();
  }
}

TEST(FutureBasics, ReadyAndFailedFutures) {
  EXPECT_EQ(make_ready_future(std::string("x")).wait(), "x");
  EXPECT_TRUE(make_ready_future().done());
  EXPECT_THROW(make_failed_future<int>(boom()).wait(), std::invalid_argument);
}

// ---- take

TEST_P(FutureTest, TakeMovesOutOfTheOnlyFuture) {
  auto promise = make<std::unique_ptr<int>>();
  Future<std::unique_ptr<int>> future = promise.future();
  promise.set_value(std::make_unique<int>(5));
  EXPECT_EQ(*future.take(), 5);
  EXPECT_FALSE(future.valid());
  EXPECT_EQ(error_of([&] { promise.future().wait(); }).code, ErrorCode::kFailedPrecondition);
}

TEST_P(FutureTest, TakeCopiesWhatIsShared) {
  auto promise = make<std::string>();
  Future<std::string> first = promise.future();
  Future<std::string> second = first;
  promise.set_value("shared");
  EXPECT_EQ(first.take(), "shared");
  EXPECT_EQ(second.wait(), "shared");
  EXPECT_EQ(second.take(), "shared");
}

TEST_P(FutureTest, TakeRefusesToShareWhatCanOnlyBeMoved) {
  auto promise = make<std::unique_ptr<int>>();
  Future<std::unique_ptr<int>> first = promise.future();
  const Future<std::unique_ptr<int>> second = first;
  promise.set_value(std::make_unique<int>(5));
  EXPECT_EQ(error_of([&] { first.take(); }).code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(*second.wait(), 5);
}

TEST(FutureBasics, TakeOfAFailedFutureLeavesItValid) {
  Future<int> failed = make_failed_future<int>(boom());
  EXPECT_THROW(failed.take(), std::invalid_argument);
  EXPECT_TRUE(failed.valid());
}

TEST(FutureBasics, TakeDoesNotMoveUnderAPendingCallback) {
  Executor executor({});
  for (int round = 0; round < 200; ++round) {
    Promise<std::string> promise(&executor);
    Future<std::string> future = promise.future();
    const Future<bool> intact =
        future.then([](const std::string& text) { return text == std::string(64, 'x'); });
    promise.set_value(std::string(64, 'x'));
    EXPECT_EQ(future.take(), std::string(64, 'x'));
    EXPECT_TRUE(intact.wait());
  }
}

TEST_P(FutureTest, AContinuationMayTakeFromItsFuture) {
  auto promise = make<std::unique_ptr<int>>();
  Future<std::unique_ptr<int>> child =
      promise.future().then([](Future<std::unique_ptr<int>> parent) { return parent.take(); });
  promise.set_value(std::make_unique<int>(5));
  EXPECT_EQ(*child.take(), 5);
}

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

// ---- collections (FUT-10, FUT-11)

TEST_P(FutureTest, CollectAllKeepsTheOrder) {
  std::vector<Promise<int>> promises;
  std::vector<Future<int>> futures;
  for (int i = 0; i < 10; ++i) {
    promises.push_back(make<int>());
    futures.push_back(promises.back().future());
  }
  const Future<std::vector<int>> all = collect_all(futures);
  for (int i = 9; i >= 0; --i) {
    EXPECT_FALSE(all.done());
    promises[i].set_value(i);
  }
  EXPECT_EQ(all.wait(), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(wait_all(futures), all.wait());
}

TEST_P(FutureTest, CollectAllEndsAtTheFirstError) {
  auto pending = make<int>();
  auto failing = make<int>();
  const auto all = collect_all(std::vector<Future<int>>{pending.future(), failing.future()});
  EXPECT_FALSE(all.done());
  failing.set_error(boom());
  EXPECT_THROW(all.wait(), std::invalid_argument);
  EXPECT_FALSE(pending.future().done());
  EXPECT_THROW(wait_all(std::vector<Future<int>>{pending.future(), failing.future()}),
               std::invalid_argument);
  pending.set_value(1);
  EXPECT_THROW(all.wait(), std::invalid_argument);
}

TEST_P(FutureTest, CollectsVoidMoveOnlyAndNothing) {
  EXPECT_TRUE(collect_all(std::vector<Future<int>>()).wait().empty());
  wait_all(std::vector<Future<void>>());
  auto done = make<void>();
  std::thread completer([&] { done.set_value(); });
  wait_all(std::vector<Future<void>>{done.future(), make_ready_future()});
  completer.join();
  std::vector<Future<std::unique_ptr<int>>> owned;
  owned.push_back(make_ready_future(std::make_unique<int>(1)));
  owned.push_back(make_ready_future(std::make_unique<int>(2)));
  const std::vector<std::unique_ptr<int>> values = wait_all(std::move(owned));
  EXPECT_EQ(*values[0] + *values[1], 3);
}

TEST(FutureBasics, CollectAllNamesTheInvalidElement) {
  const std::vector<Future<int>> futures{make_ready_future(1), Future<int>()};
  const ErrorInfo error = error_of([&] { collect_all(futures); });
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.message, "element 1 of 2 futures is invalid");
  EXPECT_EQ(error_of([&] { wait_all(futures); }).code, ErrorCode::kInvalidArgument);
}

TEST(FutureBasics, AnAbandonedCollectionLeavesNothingBehind) {
  auto value = std::make_shared<int>(1);
  {
    Promise<std::shared_ptr<int>> promise;
    const auto all = collect_all(std::vector{promise.future()});
    promise.set_value(value);
    EXPECT_TRUE(all.done());
  }
  EXPECT_EQ(value.use_count(), 1);
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
