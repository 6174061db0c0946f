// What rpc/ relies on beyond the public functions of a future: deferred outcomes and thread
// contexts.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/thread_context.h"
#include "sinew/rpc/base/threads/executor.h"

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

// ---- deferred outcomes

TEST(DeferredFuture, TheReaderProducesTheValue) {
  Promise<int> promise;
  const Future<int> future = promise.future();
  std::thread::id producer;
  std::thread completer([&] {
    EXPECT_TRUE(FutureAccess::complete_lazily<int>(promise, [&] {
      producer = std::this_thread::get_id();
      return 5;
    }));
  });
  completer.join();
  EXPECT_TRUE(future.done());
  EXPECT_EQ(producer, std::thread::id());
  EXPECT_EQ(future.wait(), 5);
  EXPECT_EQ(producer, std::this_thread::get_id());
  EXPECT_FALSE(promise.try_set_value(6));
  EXPECT_FALSE(FutureAccess::complete_lazily<int>(promise, [] { return 7; }));
  EXPECT_EQ(future.value(), 5);
}

TEST(DeferredFuture, RunsOnceUnderContention) {
  for (int round = 0; round < 200; ++round) {
    Promise<int> promise;
    std::atomic<int> runs{0};
    std::atomic<int> sum{0};
    std::vector<std::thread> readers;
    for (int i = 0; i < 4; ++i) {
      readers.emplace_back([&sum, future = promise.future()] { sum += future.wait(); });
    }
    FutureAccess::complete_lazily<int>(promise, [&] {
      ++runs;
      std::this_thread::yield();
      return 2;
    });
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(runs, 1);
    EXPECT_EQ(sum, 8);
  }
}

TEST(DeferredFuture, WhatTheProducerThrowsIsTheError) {
  Promise<int> promise;
  const Future<int> future = promise.future();
  FutureAccess::complete_lazily<int>(promise, []() -> int { throw std::out_of_range("decoding"); });
  EXPECT_NE(future.error(), nullptr);
  EXPECT_THROW(future.wait(), std::out_of_range);
  EXPECT_THROW(future.value(), std::out_of_range);
}

TEST(DeferredFuture, CallbacksProduceOnTheExecutor) {
  Executor executor({});
  Promise<std::string> promise(&executor);
  std::atomic<Executor*> producer{nullptr};
  const Future<std::size_t> child =
      promise.future().then([](const std::string& text) { return text.size(); });
  FutureAccess::complete_lazily<std::string>(promise, [&] {
    producer = Executor::current();
    return std::string(10, 'x');
  });
  EXPECT_EQ(child.wait(), 10u);
  EXPECT_EQ(producer, &executor);
}

TEST(DeferredFuture, CollectionsAndFlatteningProduceOnTheExecutor) {
  Executor executor({});
  Promise<int> outer(&executor);
  Promise<std::unique_ptr<int>> inner(&executor);
  Promise<int> failing(&executor);
  std::atomic<Executor*> producer{nullptr};
  Future<std::unique_ptr<int>> flat =
      outer.future().then([f = inner.future()](int) mutable { return std::move(f); });
  const auto all = collect_all(std::vector<Future<int>>{outer.future(), failing.future()});
  outer.set_value(1);
  FutureAccess::complete_lazily<std::unique_ptr<int>>(inner, [&] {
    producer = Executor::current();
    return std::make_unique<int>(3);
  });
  FutureAccess::complete_lazily<int>(failing, []() -> int { throw std::length_error("late"); });
  EXPECT_EQ(*flat.take(), 3);
  EXPECT_EQ(producer, &executor);
  EXPECT_THROW(all.wait(), std::length_error);
}

TEST(DeferredFuture, WhatIsFlattenedTakesAValueThatCanOnlyBeMoved) {
  Promise<int> outer;
  Promise<std::unique_ptr<int>> inner;
  FutureAccess::complete_lazily<std::unique_ptr<int>>(inner,
                                                      [] { return std::make_unique<int>(3); });
  Future<std::unique_ptr<int>> flat =
      outer.future().then([f = inner.future()](int) mutable { return std::move(f); });
  outer.set_value(1);
  EXPECT_EQ(*flat.take(), 3);
}

TEST(DeferredFuture, IsDestroyedUnrunIfNobodyReads) {
  auto held = std::make_shared<int>(1);
  bool ran = false;
  {
    Promise<int> promise;
    const Future<int> future = promise.future();
    FutureAccess::complete_lazily<int>(promise, [held, &ran] {
      ran = true;
      return *held;
    });
    EXPECT_TRUE(future.done());
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_FALSE(ran);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(DeferredFuture, FreesTheProducerOnceItHasRun) {
  auto held = std::make_shared<int>(1);
  Promise<void> promise;
  FutureAccess::complete_lazily<void>(promise, [held] {});
  promise.future().wait();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(DeferredFuture, ProducesNowIfAsked) {
  Promise<int> promise;
  int runs = 0;
  EXPECT_TRUE(FutureAccess::complete_lazily<int>(
      promise, [&] { return ++runs; }, FutureAccess::Production::kNow));
  EXPECT_EQ(runs, 1);
  EXPECT_FALSE(FutureAccess::complete_lazily<int>(
      promise, [&] { return ++runs; }, FutureAccess::Production::kNow));
  EXPECT_EQ(promise.future().wait(), 1);
  Promise<void> failing;
  FutureAccess::complete_lazily<void>(
      failing, [] { throw std::length_error("now"); }, FutureAccess::Production::kNow);
  EXPECT_THROW(failing.future().wait(), std::length_error);
}

TEST(DeferredFuture, AProducerThatReadsItsOwnFutureFails) {
  Promise<int> promise;
  FutureAccess::complete_lazily<int>(promise, [promise] { return promise.future().wait(); });
  try {
    promise.future().wait();
    FAIL();
  } catch (const RpcError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  }
}

TEST(DeferredFuture, WaitForEndsWhileAnotherThreadProduces) {
  Promise<int> promise;
  std::promise<void> producing;
  std::promise<void> gate;
  FutureAccess::complete_lazily<int>(promise, [&] {
    producing.set_value();
    gate.get_future().wait();
    return 1;
  });
  std::thread reader([future = promise.future()] { EXPECT_EQ(future.wait(), 1); });
  producing.get_future().wait();
  EXPECT_THROW(promise.future().wait_for(1ms), RpcError);
  gate.set_value();
  EXPECT_EQ(promise.future().wait(), 1);
  reader.join();
}

// ---- contexts

class TestContext final : public ThreadContext {
 public:
  TestContext(std::string chain, Steady::time_point deadline)
      : chain_(std::move(chain)), deadline_(deadline) {}
  std::string describe_chain() const override { return chain_; }
  Steady::time_point deadline() const override { return deadline_; }

 private:
  const std::string chain_;
  const Steady::time_point deadline_;
};

std::shared_ptr<const ThreadContext> context(
    std::string chain, Steady::time_point deadline = Steady::time_point::max()) {
  return std::make_shared<TestContext>(std::move(chain), deadline);
}

TEST(ThreadContextTest, ScopesNest) {
  EXPECT_EQ(ThreadContext::current(), nullptr);
  const auto outer = context("outer");
  {
    const ThreadContext::Scope scope(outer);
    EXPECT_EQ(ThreadContext::current(), outer);
    {
      const ThreadContext::Scope none(nullptr);
      EXPECT_EQ(ThreadContext::current(), nullptr);
    }
    EXPECT_EQ(ThreadContext::current(), outer);
    std::thread([] { EXPECT_EQ(ThreadContext::current(), nullptr); }).join();
  }
  EXPECT_EQ(ThreadContext::current(), nullptr);
  EXPECT_EQ(outer.use_count(), 1);
}

TEST(ThreadContextTest, ContinuationsInheritTheContextOfTheirRegistration) {
  Executor executor({});
  Promise<int> promise(&executor);
  const Future<int> future = promise.future();
  const auto chain = [](int) {
    return ThreadContext::current() == nullptr ? "none"
                                               : ThreadContext::current()->describe_chain();
  };
  Future<std::string> a, b, c, nested;
  {
    const ThreadContext::Scope scope(context("a"));
    a = future.then(chain);
    nested = future.then([&](int x) { return make_ready_future(x).then(chain); });
  }
  {
    const ThreadContext::Scope scope(context("b"));
    b = future.then(chain);
  }
  c = future.then(chain);
  promise.set_value(1);
  EXPECT_EQ(a.wait(), "a");
  EXPECT_EQ(b.wait(), "b");
  EXPECT_EQ(c.wait(), "none");
  EXPECT_EQ(nested.wait(), "a");
}

TEST(ThreadContextTest, AWaitEndsAtTheDeadlineOfTheContext) {
  Promise<int> promise;
  const Future<int> future = promise.future();
  const ThreadContext::Scope scope(context("client -> app::serve", Steady::now() - 1s));
  try {
    future.wait();
    FAIL();
  } catch (const RpcError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    EXPECT_NE(error.message().find("client -> app::serve"), std::string::npos) << error.message();
  }
  EXPECT_THROW(future.wait_for(1h), RpcError);
  promise.set_value(1);
  EXPECT_EQ(future.wait(), 1) << "a deadline that has passed does not hide a value that is there";
}

TEST(ThreadContextTest, TheErrorOfAFullPoolShowsTheChain) {
  Executor::Options options;
  options.max_blocked_threads = 0;
  Executor executor(options);
  Promise<int> never;
  Promise<std::string> seen;
  executor.post([&] {
    const ThreadContext::Scope scope(context("client -> app::serve -> app::inner"));
    try {
      never.future().wait();
      seen.set_value("no error");
    } catch (const RpcError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
      seen.set_value(error.message());
    }
  });
  const std::string message = seen.future().take();
  EXPECT_NE(message.find("client -> app::serve -> app::inner"), std::string::npos) << message;
}

}  // namespace
}  // namespace sinew::internal
