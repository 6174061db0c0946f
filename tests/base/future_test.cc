// How futures are completed, read and collected.

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "sinew/tests/base/future_test_support.h"

namespace sinew {
namespace {

using namespace std::chrono_literals;

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

}  // namespace
}  // namespace sinew
