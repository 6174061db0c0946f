// Batchers by themselves, and behind the methods of a worker.

#include "sinew/rpc/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sinew/tests/support/cluster.h"

namespace batcher_test {

/// Each batch passes it.
sinew::testing::Gate gate;

/// Doubles numbers, and remembers the batches.
class Doubler {
 public:
  explicit Doubler(std::int64_t max_batch) : batcher_(run_function(), options(max_batch)) {}

  sinew::Future<std::int64_t> twice(std::int64_t number) { return batcher_(number); }
  std::int64_t queued() const { return static_cast<std::int64_t>(batcher_.stats().queued); }
  std::vector<std::int64_t> batches() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return batches_;
  }

 private:
  static sinew::BatcherOptions options(std::int64_t max_batch) {
    sinew::BatcherOptions options;
    options.max_batch = static_cast<std::size_t>(max_batch);
    options.max_queued = options.max_batch;
    options.max_wait = sinew::kNoTimeout;
    return options;
  }
  std::function<std::vector<std::int64_t>(std::vector<std::int64_t>)> run_function() {
    return [this](std::vector<std::int64_t> numbers) {
      gate.pass();
      const std::lock_guard<std::mutex> lock(mutex_);
      batches_.push_back(static_cast<std::int64_t>(numbers.size()));
      for (std::int64_t& number : numbers) {
        if (number < 0) throw std::domain_error("there is a negative number");
        number *= 2;
      }
      return numbers;
    };
  }

  mutable std::mutex mutex_;
  std::vector<std::int64_t> batches_;
  sinew::Batcher<std::int64_t, std::int64_t> batcher_;
};

}  // namespace batcher_test

SINEW_SERVICE(batcher_test::Doubler, (std::int64_t), twice, queued, batches);

namespace sinew {
namespace {

using batcher_test::Doubler;
using ::testing::ElementsAre;
using testing::error_of;
using testing::eventually;
using testing::Gate;
using ::testing::HasSubstr;

using Ints = std::vector<int>;

BatcherOptions patient(std::size_t max_batch) {
  BatcherOptions options;
  options.max_batch = max_batch;
  options.max_wait = kNoTimeout;
  return options;
}

Ints doubled(Ints numbers) {
  for (int& number : numbers) number *= 2;
  return numbers;
}

// ---- by itself

TEST(BatcherTest, AnswersInTheOrderOfTheCalls) {
  Ints sizes;
  Batcher<int, int> batcher(
      [&sizes](Ints numbers) {
        sizes.push_back(static_cast<int>(numbers.size()));
        return doubled(std::move(numbers));
      },
      patient(3));
  std::vector<Future<int>> answers;
  for (int i = 0; i < 6; ++i) answers.push_back(batcher(i));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(answers[static_cast<std::size_t>(i)].wait(), 2 * i);
  EXPECT_THAT(sizes, ElementsAre(3, 3));
  EXPECT_EQ(batcher.stats().batches, 2u);
  EXPECT_EQ(batcher.stats().calls, 6u);
}

TEST(BatcherTest, GoesWhenTheFirstHasWaited) {
  BatcherOptions options;
  options.max_wait = std::chrono::milliseconds(5);
  Batcher<int, int> batcher(&doubled, options);
  EXPECT_EQ(batcher(4).wait(), 8);
  EXPECT_EQ(batcher(5).wait(), 10) << "the alarm is set again";
}

TEST(BatcherTest, GoesWhenAllAreIn) {
  BatcherOptions options = patient(64);
  options.expected = 2;
  Batcher<int, int> batcher(&doubled, options);
  const Future<int> first = batcher(1);
  EXPECT_EQ(batcher.stats().queued, 1u);
  EXPECT_EQ(batcher(2).wait(), 4);
  EXPECT_EQ(first.wait(), 2);
  // One of the callers is gone.
  const Future<int> alone = batcher(3);
  EXPECT_EQ(batcher.stats().queued, 1u);
  batcher.set_expected(1);
  EXPECT_EQ(alone.wait(), 6);
}

TEST(BatcherTest, CollectsWhileABatchRuns) {
  Gate gate;
  Ints sizes;
  BatcherOptions options;
  options.max_wait = std::chrono::nanoseconds(0);
  Batcher<int, int> batcher(
      [&](Ints numbers) {
        gate.pass();
        sizes.push_back(static_cast<int>(numbers.size()));
        return numbers;
      },
      options);
  std::vector<Future<int>> answers = {batcher(0)};
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  for (int i = 1; i < 4; ++i) answers.push_back(batcher(i));
  EXPECT_EQ(gate.arrivals(), 1) << "one at a time";
  gate.open();
  EXPECT_EQ(wait_all(std::move(answers)), (Ints{0, 1, 2, 3}));
  EXPECT_THAT(sizes, ElementsAre(1, 3));
}

TEST(BatcherTest, SeveralAtOnce) {
  Gate gate;
  BatcherOptions options = patient(1);
  options.max_concurrent = 2;
  Batcher<int, int> batcher(
      [&](Ints numbers) {
        gate.pass();
        return numbers;
      },
      options);
  std::vector<Future<int>> answers;
  for (int i = 0; i < 3; ++i) answers.push_back(batcher(i));
  ASSERT_TRUE(gate.wait_for_arrivals(2));
  EXPECT_EQ(batcher.stats().running, 2u);
  EXPECT_EQ(batcher.stats().queued, 1u);
  gate.open();
  EXPECT_EQ(wait_all(std::move(answers)), (Ints{0, 1, 2}));
}

TEST(BatcherTest, MoveOnlyValuesAndFunctions) {
  using Box = std::unique_ptr<int>;
  Batcher<Box, Box> batcher(
      [own = std::make_unique<int>(3)](std::vector<Box> boxes) {
        for (Box& box : boxes) *box += *own;
        return boxes;
      },
      patient(2));
  Future<Box> first = batcher(std::make_unique<int>(1));
  Future<Box> second = batcher(std::make_unique<int>(2));
  EXPECT_EQ(*first.take(), 4);
  EXPECT_EQ(*second.take(), 5);
}

TEST(BatcherTest, NothingToReturn) {
  int sum = 0;
  Batcher<int, void> batcher(
      [&sum](const Ints& numbers) {
        for (const int number : numbers) sum += number;
      },
      patient(2));
  const Future<void> first = batcher(1);
  batcher(2).wait();
  first.wait();
  EXPECT_EQ(sum, 3);
}

TEST(BatcherTest, AFutureHoldsNoThread) {
  // Two run at once, in any order: by the first number of each.
  std::mutex mutex;
  std::map<int, Promise<Ints>> promises;
  const auto promise_of = [&](int first) {
    const std::lock_guard<std::mutex> lock(mutex);
    return promises.try_emplace(first, nullptr).first->second;
  };
  Gate asked;
  asked.open();
  BatcherOptions options = patient(2);
  options.max_concurrent = 2;
  Batcher<int, int> batcher(
      [&](const Ints& inputs) {
        const Future<Ints> outputs = promise_of(inputs.front()).future();
        asked.pass();
        return outputs;
      },
      options);
  std::vector<Future<int>> answers;
  for (int i = 0; i < 6; ++i) answers.push_back(batcher(i));
  ASSERT_TRUE(asked.wait_for_arrivals(2));
  EXPECT_EQ(batcher.stats().running, 2u);
  EXPECT_EQ(batcher.stats().queued, 2u) << "a batch runs until its future is done";
  promise_of(2).set_value({20, 30});
  ASSERT_TRUE(asked.wait_for_arrivals(3));
  EXPECT_EQ(answers[3].wait(), 30);
  promise_of(0).set_error(RpcError(ErrorCode::kDataLoss, "lost"));
  EXPECT_EQ(error_of([&] { answers[0].wait(); }).code(), ErrorCode::kDataLoss);
  promise_of(4).set_value({40});
  EXPECT_EQ(error_of([&] { answers[4].wait(); }).code(), ErrorCode::kInternal);
  EXPECT_TRUE(eventually([&] { return batcher.stats().running == 0; }));
}

TEST(BatcherTest, ErrorsAreOfTheWholeBatch) {
  Batcher<int, int> batcher(
      [](Ints numbers) -> Ints {
        if (numbers.size() == 2) throw std::domain_error("two are too many");
        numbers.pop_back();
        return numbers;
      },
      patient(3));
  std::vector<Future<int>> answers;
  for (int i = 0; i < 3; ++i) answers.push_back(batcher(i));
  for (const auto& answer : answers) {
    const RpcError error = error_of([&] { answer.wait(); });
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.message(), HasSubstr("2 outputs for a batch of 3 calls"));
  }
  batcher.set_expected(2);
  const std::vector<Future<int>> two = {batcher(1), batcher(2)};
  for (const auto& answer : two) EXPECT_THROW(answer.wait(), std::domain_error);
}

TEST(BatcherTest, AnInvalidFutureIsAnError) {
  Batcher<int, int> batcher([](const Ints&) { return Future<Ints>(); }, patient(1));
  EXPECT_EQ(error_of([&] { batcher(1).wait(); }).code(), ErrorCode::kInternal);
  EXPECT_EQ(error_of([&] { batcher(1).wait(); }).code(), ErrorCode::kInternal)
      << "the next batch goes";
}

TEST(BatcherTest, TooManyAreRefusedAtOnce) {
  Gate gate;
  BatcherOptions options = patient(1);
  options.max_queued = 2;
  Batcher<int, int> batcher(
      [&](Ints numbers) {
        gate.pass();
        return numbers;
      },
      options);
  std::vector<Future<int>> answers = {batcher(0)};
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  for (int i = 1; i < 3; ++i) answers.push_back(batcher(i));
  const Future<int> refused = batcher(3);
  ASSERT_TRUE(refused.done());
  const RpcError error = error_of([&] { refused.wait(); });
  EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(error.execution(), Execution::kDidNotRun);
  gate.open();
  EXPECT_EQ(wait_all(std::move(answers)), (Ints{0, 1, 2}));
  EXPECT_EQ(batcher.stats().rejected, 1u);
}

TEST(BatcherTest, RefusesOptionsThatMakeNoSense) {
  const RpcError error = error_of([] { Batcher<int, int> batcher(&doubled, patient(0)); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("max_batch"));
}

TEST(BatcherTest, DestructionFailsWhoWaitsAndWaitsForWhatRuns) {
  Gate gate;
  std::atomic<bool> ran{false};
  auto batcher = std::make_unique<Batcher<int, int>>(
      [&](Ints numbers) {
        gate.pass();
        ran = true;
        return numbers;
      },
      patient(2));
  const std::vector<Future<int>> runs = {(*batcher)(0), (*batcher)(1)};
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  const Future<int> waits = (*batcher)(2);
  std::thread destroyer([&] {
    batcher.reset();
    EXPECT_TRUE(ran);
  });
  const RpcError error = error_of([&] { waits.wait(); });
  EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  EXPECT_THAT(error.message(), HasSubstr("the Batcher was destroyed"));
  EXPECT_FALSE(ran);
  gate.open();
  destroyer.join();
  EXPECT_EQ(runs[1].wait(), 1);
}

TEST(BatcherTest, ABatchMayDestroyItsBatcher) {
  Gate gate;
  std::unique_ptr<Batcher<int, int>> batcher;
  batcher = std::make_unique<Batcher<int, int>>(
      [&](Ints numbers) {
        gate.pass();
        batcher.reset();
        return numbers;
      },
      patient(1));
  const Future<int> answer = batcher->add(7);
  const Future<int> waits = batcher->add(8);
  gate.open();
  EXPECT_EQ(answer.wait(), 7);
  EXPECT_EQ(error_of([&] { waits.wait(); }).code(), ErrorCode::kCancelled);
}

TEST(BatcherTest, ManyThreads) {
  constexpr int kThreads = 8;
  constexpr int kCalls = 300;
  std::atomic<int> in_run{0};
  BatcherOptions options;
  options.max_batch = 5;
  options.max_wait = std::chrono::microseconds(200);
  Batcher<int, int> batcher(
      [&](Ints numbers) {
        EXPECT_EQ(++in_run, 1);
        EXPECT_LE(numbers.size(), 5u);
        numbers = doubled(std::move(numbers));
        --in_run;
        return numbers;
      },
      options);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&batcher, t] {
      for (int i = 0; i < kCalls; ++i)
        EXPECT_EQ(batcher(t * kCalls + i).wait(), 2 * (t * kCalls + i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(batcher.stats().calls, static_cast<std::uint64_t>(kThreads * kCalls));
}

// ---- behind methods

class BatcherClusterTest : public testing::ClusterTest {
 protected:
  void SetUp() override {
    batcher_test::gate.close();
    batcher_test::gate.open();
    start(2, serve<Doubler>(), [](int, WorkerOptions& options) { options.num_threads = 1; });
  }
  RRef<Doubler> doubler(std::int64_t max_batch) const {
    return worker(0).peer(1).remote<Doubler>(max_batch);
  }
  static bool has_queued(const RRef<Doubler>& doubler, std::int64_t count) {
    return eventually([&] { return doubler.call<&Doubler::queued>() == count; });
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(BatcherClusterTest);

TEST_P(BatcherClusterTest, ManyCallsOneThread) {
  const RRef<Doubler> remote = doubler(50);
  std::vector<Future<std::int64_t>> answers;
  for (int i = 0; i < 100; ++i) answers.push_back(remote.async<&Doubler::twice>(i));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(answers[static_cast<std::size_t>(i)].wait(), 2 * i);
  EXPECT_THAT(remote.call<&Doubler::batches>(), ElementsAre(50, 50));
  EXPECT_EQ(worker(1).counters().at("rpc.blocked_threads"), 0);
}

TEST_P(BatcherClusterTest, ErrorsReachEachCaller) {
  const RRef<Doubler> remote = doubler(3);
  std::vector<Future<std::int64_t>> answers;
  for (const int number : {1, -1, 2}) answers.push_back(remote.async<&Doubler::twice>(number));
  for (const auto& answer : answers) {
    const RpcError error = error_of([&] { answer.wait(); });
    EXPECT_THAT(error.remote_message(), HasSubstr("negative"));
    EXPECT_EQ(error.type_name(), "std::domain_error");
    EXPECT_EQ(error.execution(), Execution::kMayHaveRun);
  }
}

TEST_P(BatcherClusterTest, CancelledCallsTakeNoPlace) {
  const RRef<Doubler> remote = doubler(2);
  const CancellationSource source;
  CallOptions options;
  options.cancellation = source.token();
  const auto cancelled = remote.with(options).async<&Doubler::twice>(1);
  ASSERT_TRUE(has_queued(remote, 1));
  source.cancel();
  EXPECT_EQ(error_of([&] { cancelled.wait(); }).code(), ErrorCode::kCancelled);
  ASSERT_TRUE(has_queued(remote, 0));
  const auto first = remote.async<&Doubler::twice>(2);
  const auto second = remote.async<&Doubler::twice>(3);
  EXPECT_EQ(first.wait(), 4);
  EXPECT_EQ(second.wait(), 6);
  EXPECT_THAT(remote.call<&Doubler::batches>(), ElementsAre(2));
}

TEST_P(BatcherClusterTest, CallsPastTheirTimeTakeNoPlace) {
  const RRef<Doubler> remote = doubler(2);
  remote.created().wait();
  CallOptions options;
  options.timeout = std::chrono::milliseconds(50);
  const auto late = remote.with(options).async<&Doubler::twice>(1);
  EXPECT_EQ(error_of([&] { late.wait(); }).code(), ErrorCode::kDeadlineExceeded);
  ASSERT_TRUE(has_queued(remote, 0));
  const auto first = remote.async<&Doubler::twice>(2);
  const auto second = remote.async<&Doubler::twice>(3);
  EXPECT_EQ(first.wait(), 4);
  EXPECT_EQ(second.wait(), 6);
}

TEST_P(BatcherClusterTest, CallsThatAreTooManyDidNotRun) {
  const RRef<Doubler> remote = doubler(1);
  remote.created().wait();
  batcher_test::gate.close();
  std::vector<Future<std::int64_t>> answers = {remote.async<&Doubler::twice>(1)};
  ASSERT_TRUE(batcher_test::gate.wait_for_arrivals(1));
  answers.push_back(remote.async<&Doubler::twice>(2));
  ASSERT_TRUE(has_queued(remote, 1));
  const RpcError error = error_of([&] { remote.call<&Doubler::twice>(3); });
  EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(error.execution(), Execution::kDidNotRun);
  batcher_test::gate.open();
  EXPECT_EQ(wait_all(std::move(answers)), (std::vector<std::int64_t>{2, 4}));
}

TEST_P(BatcherClusterTest, EndsWithItsObject) {
  std::vector<Future<std::int64_t>> answers;
  {
    const RRef<Doubler> remote = doubler(10);
    answers.push_back(remote.async<&Doubler::twice>(1));
    ASSERT_TRUE(has_queued(remote, 1));
  }
  // The call keeps the object, and the object the call: its caller gives up.
  abandon();
  EXPECT_THROW(answers.front().wait(), RpcError);
}

}  // namespace
}  // namespace sinew
