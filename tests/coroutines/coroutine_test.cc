// Coroutines of C++20: co_await of futures, and methods that are coroutines.

#include "sinew/rpc/coroutine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "absl/status/status.h"
#include "c10/core/Scalar.h"
#include "c10/core/StreamGuard.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/batcher.h"
#include "sinew/tests/coroutines/signal.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/fake_device.h"
#include "sinew/tests/support/fake_streams.h"
#include "sinew/tests/support/side_threads.h"

namespace coroutines {

/// Counts the objects of itself that live.
class Tracked {
 public:
  Tracked() { ++living; }
  Tracked(const Tracked&) { ++living; }
  ~Tracked() { --living; }
  static inline std::atomic<int> living{0};
};

using sinew::testing::Signal;
Signal signal;

std::int64_t rank_of_worker();
void fail_here();
sinew::Future<int> wait_for_signal();

}  // namespace coroutines

SINEW_METHOD(coroutines::rank_of_worker, coroutines::fail_here, coroutines::wait_for_signal);

namespace coroutines {

std::int64_t rank_of_worker() { return sinew::current_worker().rank(); }
void fail_here() { throw std::domain_error("not in this domain"); }

sinew::Future<std::int64_t> sum_of_ranks() {
  const sinew::Worker worker = sinew::current_worker();
  std::int64_t sum = 0;
  for (const sinew::WorkerInfo& peer : worker.workers()) {
    sum += co_await worker.peer(peer).async<&rank_of_worker>();
  }
  co_return sum;
}

sinew::Future<std::string> joined(const std::string& first, std::string second,
                                  const at::Scalar& scalar) {
  const int number = co_await signal.get();
  co_return first + second + std::to_string(number + scalar.toInt());
}

sinew::Future<void> fail_there(int rank) {
  co_await sinew::current_worker().peer(rank).async<&fail_here>();
}

sinew::Future<int> wait_for_signal() {
  const Tracked tracked;
  co_return co_await signal.get();
}

/// How coroutines have ended.
std::vector<std::string> endings;
std::mutex endings_mutex;

/// Waits for a signal at the worker of that rank: a call, or here.
sinew::Future<int> note_the_end(int rank) {
  const Tracked tracked;
  try {
    const sinew::Worker worker = sinew::current_worker();
    if (worker.rank() == rank) co_return co_await signal.get();
    co_return co_await worker.peer(rank).async<&wait_for_signal>();
  } catch (const sinew::RpcError& error) {
    const std::lock_guard<std::mutex> lock(endings_mutex);
    endings.push_back(absl::StatusCodeToString(error.code()) + ": " + error.message());
    throw;
  }
}

/// The call that is served, whose time is over sooner.
class Hurried final : public sinew::internal::ThreadContext {
 public:
  std::chrono::steady_clock::time_point deadline() const override { return deadline_; }
  const sinew::internal::ThreadContext* served() const override { return outer_->served(); }
  std::string describe_chain() const override { return outer_->describe_chain(); }

 private:
  const std::shared_ptr<const sinew::internal::ThreadContext> outer_ = current();
  const std::chrono::steady_clock::time_point deadline_ =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
};

sinew::Future<std::string> wait_in_a_hurry() {
  const sinew::internal::ThreadContext::Scope scope(std::make_shared<Hurried>());
  try {
    co_await signal.get();
  } catch (const sinew::RpcError& error) {
    if (error.code() == sinew::ErrorCode::kDeadlineExceeded) co_return std::string(error.message());
    throw;
  }
  co_return "got a signal";
}

/// What the coroutine finds on its threads, before and after it has changed them.
sinew::Future<std::vector<std::string>> surroundings() {
  const auto look = [] {
    const sinew::CallContext& call = sinew::CallContext::current();
    const bool is_worker = sinew::internal::Executor::current() != nullptr;
    return call.method() + (sinew::autograd::Context::current_or_none() ? ", context" : "") +
           (at::GradMode::is_enabled() ? ", grad" : "") + (is_worker ? ", executor" : "");
  };
  std::vector<std::string> seen = {look()};
  co_await signal.get();
  seen.push_back(look());
  {
    const at::NoGradGuard no_grad;
    seen.push_back(look());
    co_await signal.get();
    seen.push_back(look());
  }
  seen.push_back(look());
  co_return seen;
}

/// Three times the tensor: twice by another thread's stream.
sinew::Future<at::Tensor> thrice(const at::Tensor& tensor) {
  const sinew::Future<at::Tensor> doubled =
      sinew::testing::on_side(tensor.device().index(), [tensor] { return tensor.mul(2); });
  co_return (co_await doubled).add(tensor);
}

class Adder {
 public:
  sinew::Future<std::int64_t> add(std::int64_t value) {
    sum_ += co_await batcher_(value);
    co_return sum_;
  }

 private:
  std::atomic<std::int64_t> sum_{0};
  sinew::Batcher<std::int64_t, std::int64_t> batcher_{
      [](std::vector<std::int64_t> values) { return values; }};
};

}  // namespace coroutines

SINEW_METHOD(coroutines::sum_of_ranks, coroutines::joined, coroutines::fail_there,
             coroutines::note_the_end, coroutines::surroundings, coroutines::wait_in_a_hurry,
             coroutines::thrice);
SINEW_SERVICE(coroutines::Adder, (), add);

namespace sinew {
namespace {

using coroutines::Tracked;
using ::testing::ElementsAre;
using testing::error_of;
using testing::eventually;
using ::testing::HasSubstr;

// ---- without workers

Future<int> plus_one(Future<int> future) {
  const Tracked tracked;
  co_return co_await std::move(future) + 1;
}

TEST(CoroutineTest, GoesOnWhenTheFutureIsDone) {
  const Promise<int> promise(nullptr);
  const Future<int> result = plus_one(promise.future());
  EXPECT_FALSE(result.done());
  EXPECT_EQ(Tracked::living, 1);
  promise.set_value(4);
  ASSERT_TRUE(result.done()) << "without an executor it goes on in set_value()";
  EXPECT_EQ(result.wait(), 5);
  EXPECT_EQ(Tracked::living, 0);
}

TEST(CoroutineTest, DoesNotSuspendForWhatIsDone) {
  EXPECT_EQ(plus_one(make_ready_future(1)).value(), 2);
}

TEST(CoroutineTest, NamedAndTemporaryFutures) {
  using Box = std::unique_ptr<int>;
  const Promise<Box> named(nullptr);
  const Promise<Box> temporary(nullptr);
  const Future<Box> shared = named.future();
  const auto run = [](const Future<Box>& first, Future<Box> second) -> Future<int> {
    const Box& a = co_await first;
    const Box b = co_await std::move(second);
    co_return *a + *b;
  };
  const Future<int> sum = run(shared, temporary.future());
  named.set_value(std::make_unique<int>(1));
  temporary.set_value(std::make_unique<int>(2));
  EXPECT_EQ(sum.value(), 3);
  EXPECT_EQ(*shared.value(), 1) << "it still has its value";
}

TEST(CoroutineTest, NothingToReturn) {
  const Promise<void> promise(nullptr);
  const auto run = [](Future<void> future) -> Future<void> { co_await std::move(future); };
  const Future<void> result = run(promise.future());
  EXPECT_FALSE(result.done());
  promise.set_value();
  result.value();
}

TEST(CoroutineTest, ErrorsComeOutOfTheFuture) {
  const Promise<int> promise(nullptr);
  const Future<int> result = plus_one(promise.future());
  promise.set_error(std::make_exception_ptr(std::domain_error("no")));
  EXPECT_THROW(result.value(), std::domain_error);
  const auto throws = []() -> Future<int> {
    throw std::domain_error("at once");
    co_return 1;
  };
  EXPECT_THROW(throws().value(), std::domain_error);
  EXPECT_EQ(error_of([] { plus_one(Future<int>()).value(); }).code(),
            ErrorCode::kFailedPrecondition);
}

TEST(CoroutineTest, ABrokenPromiseEndsTheCoroutine) {
  Future<int> result;
  {
    const Promise<int> promise(nullptr);
    result = plus_one(promise.future());
    EXPECT_EQ(Tracked::living, 1);
  }
  EXPECT_EQ(error_of([&] { result.value(); }).code(), ErrorCode::kCancelled);
  EXPECT_EQ(Tracked::living, 0) << "its frame is gone";
}

TEST(CoroutineTest, GoesOnWhenNobodyReadsItsFuture) {
  const Promise<int> promise(nullptr);
  bool ended = false;
  const auto run = [&ended](Future<int> future) -> Future<void> {
    co_await std::move(future);
    ended = true;
  };
  run(promise.future());
  promise.set_value(1);
  EXPECT_TRUE(ended);
}

TEST(CoroutineTest, IsDoneOnceItsFrameIsGone) {
  const Promise<int> promise(nullptr);
  int living = -1;
  plus_one(promise.future()).on_done([&living] { living = Tracked::living; });
  promise.set_value(1);
  EXPECT_EQ(living, 0);
}

TEST(CoroutineTest, GoesOnOnTheExecutorOfTheFuture) {
  internal::Executor executor({});
  const Promise<int> promise(&executor);
  const auto run = [](Future<int> future) -> Future<internal::Executor*> {
    co_await std::move(future);
    co_return internal::Executor::current();
  };
  Future<internal::Executor*> where = run(promise.future());
  promise.set_value(1);
  EXPECT_EQ(where.wait(), &executor);
}

TEST(CoroutineTest, StaysOnItsExecutor) {
  internal::Executor home({});
  internal::Executor other({});
  const Promise<int> of_none(nullptr);
  const Promise<int> of_other(&other);
  const Promise<bool> outcome(nullptr);
  const auto run = [&]() -> Future<bool> {
    co_await of_none.future();
    const bool first = internal::Executor::current() == &home;
    co_await of_other.future();
    co_return first&& internal::Executor::current() == &home;
  };
  const Promise<Future<bool>> started(nullptr);
  ASSERT_TRUE(home.post([&] { started.set_value(run()); }));
  const Future<bool> stays = started.future().wait();
  of_none.set_value(1);
  of_other.set_value(1);
  EXPECT_TRUE(stays.wait());
}

/// As a thread finds it that works on it.
std::vector<float> values_of(const at::Tensor& tensor) {
  const at::Tensor host = tensor.mul(1).cpu();
  return {host.data_ptr<float>(), host.data_ptr<float>() + host.numel()};
}

TEST(CoroutineTest, WorksBehindWhatItHasQueuedElsewhere) {
  testing::FakeStreams::of_process().take_races();
  const Promise<int> promise(nullptr);
  const auto run = [](Future<int> future) -> Future<at::Tensor> {
    const at::Tensor tensor = testing::numbers(3, 0);
    const int factor = co_await std::move(future);
    co_return tensor.mul(factor);
  };
  const Future<at::Tensor> product = run(promise.future());
  // It goes on there.
  std::thread([&promise] {
    testing::set_fake_stream(0, testing::kSideStream);
    promise.set_value(2);
  }).join();
  EXPECT_THAT(values_of(product.value()), ElementsAre(0, 2, 4));
  EXPECT_THAT(testing::FakeStreams::of_process().take_races(), ::testing::IsEmpty());
}

TEST(CoroutineTest, ReturnsWhatAGuardedStreamComputes) {
  testing::FakeStreams::of_process().take_races();
  const auto run = []() -> Future<at::Tensor> {
    const c10::StreamGuard side(testing::fake_stream(0, testing::kSideStream));
    co_return testing::numbers(3, 0).mul(2);
  };
  EXPECT_THAT(values_of(run().value()), ElementsAre(0, 2, 4));
  EXPECT_THAT(testing::FakeStreams::of_process().take_races(), ::testing::IsEmpty());
}

TEST(CoroutineTest, GivesTheThreadBackAsItWas) {
  const Promise<int> promise(nullptr);
  const auto run = [](Future<int> future) -> Future<bool> {
    const at::NoGradGuard no_grad;
    co_await std::move(future);
    co_return at::GradMode::is_enabled();
  };
  const Future<bool> enabled = run(promise.future());
  EXPECT_TRUE(at::GradMode::is_enabled()) << "the guard is the coroutine's";
  promise.set_value(1);
  EXPECT_FALSE(enabled.value());
  EXPECT_TRUE(at::GradMode::is_enabled());
}

TEST(CoroutineTest, ManyThatAwaitEachOther) {
  const std::function<Future<int>(int, Future<int>)> nested = [&](int depth,
                                                                  Future<int> last) -> Future<int> {
    if (depth == 0) co_return co_await std::move(last);
    co_return co_await nested(depth - 1, std::move(last)) + 1;
  };
  internal::Executor executor({});
  const Promise<int> promise(&executor);
  const Future<int> result = nested(200, promise.future());
  promise.set_value(1);
  EXPECT_EQ(result.wait(), 201);
}

/// A coroutine type of somebody else's.
struct Task {
  struct promise_type {
    Task get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

TEST(CoroutineTest, OtherTypesOfCoroutinesCanAwaitFutures) {
  const Promise<int> promise(nullptr);
  int got = 0;
  const auto run = [&got](Future<int> future) -> Task { got = co_await std::move(future); };
  run(promise.future());
  EXPECT_EQ(got, 0);
  promise.set_value(6);
  EXPECT_EQ(got, 6);
}

// ---- as methods

class CoroutineMethodTest : public testing::ClusterTest {
 protected:
  void SetUp() override {
    MethodTable methods = serve<coroutines::Adder>();
    methods.add<&coroutines::rank_of_worker, &coroutines::fail_here, &coroutines::sum_of_ranks,
                &coroutines::joined, &coroutines::fail_there, &coroutines::wait_for_signal,
                &coroutines::note_the_end, &coroutines::surroundings, &coroutines::wait_in_a_hurry,
                &coroutines::thrice>();
    start(3, std::move(methods), [](int rank, WorkerOptions& options) {
      options.num_threads = 1;
      if (rank == 0) {
        options.device_maps["worker1"].map(testing::fake_device(0), testing::fake_device(1));
      }
    });
  }
  void TearDown() override {
    coroutines::signal.take();
    coroutines::endings.clear();
    finish();
    EXPECT_EQ(Tracked::living, 0);
  }
  Peer callee() const { return worker(0).peer(1); }
  static bool signals_wait(std::size_t count) {
    return eventually([count] { return coroutines::signal.size() == count; });
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(CoroutineMethodTest);

TEST_P(CoroutineMethodTest, AwaitsCalls) {
  EXPECT_EQ(callee().call<&coroutines::sum_of_ranks>(), 3);
  EXPECT_EQ(callee().remote<&coroutines::sum_of_ranks>().to_here(), 3);
  EXPECT_EQ(worker(0).self().call<&coroutines::sum_of_ranks>(), 3);
}

TEST_P(CoroutineMethodTest, ArgumentsLiveUntilItIsThrough) {
  const std::string long_text(200, 'x');
  const auto text = callee().async<&coroutines::joined>(long_text, std::string("-"), at::Scalar(5));
  ASSERT_TRUE(signals_wait(1));
  coroutines::signal.send(7);
  EXPECT_EQ(text.wait(), long_text + "-12");
}

TEST_P(CoroutineMethodTest, ManyHoldNoThread) {
  constexpr std::size_t kCalls = 100;
  std::vector<Future<int>> answers;
  for (std::size_t i = 0; i < kCalls; ++i) {
    answers.push_back(callee().async<&coroutines::wait_for_signal>());
  }
  ASSERT_TRUE(signals_wait(kCalls));
  EXPECT_EQ(worker(1).counters().at("rpc.blocked_threads"), 0);
  EXPECT_EQ(callee().call<&coroutines::rank_of_worker>(), 1);
  coroutines::signal.send(3);
  for (const int answer : wait_all(std::move(answers))) EXPECT_EQ(answer, 3);
}

TEST_P(CoroutineMethodTest, ErrorsOfNestedCalls) {
  const RpcError error = error_of([&] { callee().call<&coroutines::fail_there>(2); });
  EXPECT_THAT(error.message(), HasSubstr("not in this domain"));
}

TEST_P(CoroutineMethodTest, ABrokenPromiseIsAnError) {
  const auto answer = callee().async<&coroutines::wait_for_signal>();
  ASSERT_TRUE(signals_wait(1));
  coroutines::signal.take();
  EXPECT_EQ(error_of([&] { answer.wait(); }).code(), ErrorCode::kCancelled);
}

TEST_P(CoroutineMethodTest, CancellationReachesAFuture) {
  const CancellationSource source;
  CallOptions options;
  options.cancellation = source.token();
  const auto answer = callee().with(options).async<&coroutines::wait_for_signal>();
  ASSERT_TRUE(signals_wait(1));
  EXPECT_EQ(Tracked::living, 1);
  source.cancel();
  EXPECT_EQ(error_of([&] { answer.wait(); }).code(), ErrorCode::kCancelled);
  EXPECT_TRUE(eventually([] { return Tracked::living == 0; }))
      << "it does not wait for the promise, which is still there";
}

TEST_P(CoroutineMethodTest, CancellationReachesNestedCalls) {
  const CancellationSource source;
  CallOptions options;
  options.cancellation = source.token();
  const auto answer = callee().with(options).async<&coroutines::note_the_end>(2);
  ASSERT_TRUE(signals_wait(1));
  EXPECT_EQ(Tracked::living, 2);
  source.cancel();
  EXPECT_TRUE(eventually([] { return Tracked::living == 0; }));
  EXPECT_THAT(coroutines::endings, ElementsAre(HasSubstr("CANCELLED: ")));
}

TEST_P(CoroutineMethodTest, EndsAtTheDeadline) {
  CallOptions options;
  options.timeout = std::chrono::seconds(2);
  const auto answer = callee().with(options).async<&coroutines::note_the_end>(1);
  EXPECT_EQ(error_of([&] { answer.wait(); }).code(), ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(eventually([] { return Tracked::living == 0; }));
  // What the caller says at its own deadline may be there first.
  EXPECT_THAT(coroutines::endings,
              ElementsAre(::testing::AllOf(
                  ::testing::AnyOf(HasSubstr("DEADLINE_EXCEEDED: the time of the call"),
                                   HasSubstr("CANCELLED: the call was cancelled")),
                  HasSubstr("call chain: coroutines::note_the_end"))));
}

TEST_P(CoroutineMethodTest, TheDeadlineNeedsNoCaller) {
  EXPECT_THAT(callee().call<&coroutines::wait_in_a_hurry>(),
              HasSubstr("the time of the call was over while its coroutine waited for a future; "
                        "call chain: coroutines::wait_in_a_hurry"));
}

TEST_P(CoroutineMethodTest, KeepsItsSurroundings) {
  const autograd::Context context(worker(0));
  const auto answer = callee().async<&coroutines::surroundings>();
  ASSERT_TRUE(signals_wait(1));
  coroutines::signal.send(0);
  ASSERT_TRUE(signals_wait(1));
  coroutines::signal.send(0);
  const std::string all = "coroutines::surroundings, context, grad, executor";
  const std::string no_grad = "coroutines::surroundings, context, executor";
  EXPECT_THAT(answer.wait(), ElementsAre(all, all, no_grad, no_grad, all));
}

TEST_P(CoroutineMethodTest, WaitForTheStreamOfWhatTheyAwait) {
  testing::FakeStreams::of_process().take_races();
  const at::Tensor result = callee().call<&coroutines::thrice>(testing::numbers(3, 0));
  EXPECT_THAT(values_of(result), ElementsAre(0, 3, 6));
  EXPECT_THAT(testing::FakeStreams::of_process().take_races(), ::testing::IsEmpty());
  testing::SideThreads::of_process().join();
}

TEST_P(CoroutineMethodTest, MembersWithABatcher) {
  const auto adder = callee().remote<coroutines::Adder>();
  std::vector<Future<std::int64_t>> sums;
  for (int i = 1; i <= 4; ++i) sums.push_back(adder.async<&coroutines::Adder::add>(i));
  std::int64_t last = 0;
  for (const auto& sum : sums) last = std::max(last, sum.wait());
  EXPECT_EQ(last, 10);
}

TEST_P(CoroutineMethodTest, AWorkerEndsWhileCoroutinesWait) {
  const auto answer = callee().async<&coroutines::wait_for_signal>();
  ASSERT_TRUE(signals_wait(1));
  abandon();
  EXPECT_THROW(answer.wait(), RpcError);
  EXPECT_TRUE(eventually([] { return Tracked::living == 0; }));
}

}  // namespace
}  // namespace sinew
