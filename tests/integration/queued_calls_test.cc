// Calls that wait for a thread of their callee, all of which run handlers: who waits is told so
// before his time is over, and that the call did not run.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/support/cluster.h"

namespace queued {

sinew::testing::Gate gate;
std::atomic<int> ran{0};

/// Holds its thread.
int blocked() {
  gate.pass();
  return 0;
}
int quick() { return ++ran; }

struct Thing {
  int touch() { return ++ran; }
};

}  // namespace queued

SINEW_METHOD(queued::blocked, queued::quick);
SINEW_SERVICE(queued::Thing, (), touch);

namespace sinew {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::error_of;
using testing::eventually;
using ::testing::HasSubstr;

constexpr int kThreads = 2;
// A sixteenth of it is what an answer may take on its way before the caller's time is over.
constexpr std::chrono::seconds kTime{4};
// Where the machine has stood still for longer than that, another one is asked.
constexpr int kTries = 5;

class QueuedCalls : public testing::ClusterTest {
 protected:
  void SetUp() override {
    queued::gate.close();
    queued::ran = 0;
    start(2, serve<queued::Thing>().add<&queued::blocked>().add<&queued::quick>(),
          [](int, WorkerOptions& options) { options.num_threads = kThreads; });
  }
  void TearDown() override {
    release();
    ClusterTest::TearDown();
  }

  Peer callee() const { return worker(0).peer(1); }
  void fill_pool() {
    for (int i = 0; i < kThreads; ++i) {
      running_.push_back(callee().within(kNoTimeout).async<&queued::blocked>());
    }
    ASSERT_TRUE(queued::gate.wait_for_arrivals(kThreads));
  }
  void release() {
    queued::gate.open();
    for (const Future<int>& each : running_) EXPECT_EQ(each.wait(), 0);
    running_.clear();
  }
  /// The error of one that was told by the callee.
  template <class Call>
  RpcError told(Call call) {
    RpcError error(ErrorCode::kUnknown, "");
    for (int i = 0; i < kTries && error.origin() != ErrorOrigin::kCallee; ++i) {
      error = error_of(call);
      EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded) << error.what();
    }
    EXPECT_EQ(error.origin(), ErrorOrigin::kCallee) << error.what();
    EXPECT_EQ(error.execution(), Execution::kDidNotRun) << error.what();
    return error;
  }

  std::vector<Future<int>> running_;
};
SINEW_INSTANTIATE_CLUSTER_TEST(QueuedCalls);

TEST_P(QueuedCalls, AreToldBeforeTheirTimeIsOver) {
  fill_pool();
  const RpcError error = told([&] { callee().within(kTime).call<&queued::quick>(); });
  EXPECT_THAT(error.message(), AllOf(HasSubstr("worker 'worker1' did not begin the call within "),
                                     HasSubstr("queued behind 2 handlers"),
                                     HasSubstr("WorkerOptions::num_threads")));
  EXPECT_EQ(error.method(), "queued::quick");
}

TEST_P(QueuedCalls, NeverRunOnceTheyHaveBeenTold) {
  fill_pool();
  told([&] { callee().within(kTime).call<&queued::quick>(); });
  const Future<int> patient = callee().within(kNoTimeout).async<&queued::quick>();
  release();
  EXPECT_EQ(patient.wait(), 1);
  EXPECT_TRUE(eventually([&] { return worker(1).counters().at("rpc.server_active_calls") == 0; }));
  EXPECT_EQ(queued::ran, 1);
}

TEST_P(QueuedCalls, WhatTheyWouldHaveMadeFailsWithTheSame) {
  fill_pool();
  {
    RRef<queued::Thing> thing;
    const RpcError error = told([&] {
      thing = callee().within(kTime).remote<queued::Thing>();
      thing.created().wait();
    });
    EXPECT_THAT(error.message(), HasSubstr("queued behind 2 handlers"));
    release();
    EXPECT_THAT(error_of([&] { thing.call<&queued::Thing::touch>(); }).message(),
                HasSubstr("queued behind 2 handlers"));
  }
  EXPECT_EQ(queued::ran, 0);
}

TEST_P(QueuedCalls, OfAWorkerToItselfAreToldToo) {
  fill_pool();
  const Peer self = worker(1).self();
  told([&] { self.within(kTime).call<&queued::quick>(); });
}

TEST_P(QueuedCalls, ThatNobodyWaitsForAreToldToTheirCallbacks) {
  fill_pool();
  told([&] {
    const auto told = std::make_shared<std::promise<void>>();
    callee().within(kTime).async<&queued::quick>().on_done(
        [told](const Future<int>& call) { told->set_exception(call.error()); });
    told->get_future().get();
  });
  release();
  EXPECT_TRUE(eventually([&] { return worker(1).counters().at("rpc.server_active_calls") == 0; }));
  EXPECT_EQ(queued::ran, 0);
}

TEST_P(QueuedCalls, WithTimeAreAnsweredWhenThreadsAreFree) {
  fill_pool();
  const Future<int> patient = callee().async<&queued::quick>();
  told([&] { callee().within(kTime).call<&queued::quick>(); });
  EXPECT_FALSE(patient.done());
  release();
  EXPECT_EQ(patient.wait(), 1);
}

TEST_P(QueuedCalls, ThatThreadsComeToAreAnswered) {
  queued::gate.open();
  std::vector<Future<int>> calls;
  for (int i = 0; i < 100; ++i) calls.push_back(callee().within(kTime).async<&queued::quick>());
  for (const Future<int>& call : calls) EXPECT_GT(call.wait(), 0);
}

}  // namespace
}  // namespace sinew
