// Futures of calls: waiting, continuations, many at once.

#include <atomic>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "sinew/tests/support/cluster.h"

namespace futures {

sinew::testing::Gate gate;

int add(int a, int b) { return a + b; }
int blocked() {
  gate.pass();
  return 1;
}
int fail(int number) { throw std::out_of_range("number " + std::to_string(number)); }
int add_in_callback(int a, int b);
int callback_that_waits(int a, int b);
int completes_another(int value);

}  // namespace futures

SINEW_METHOD(futures::add, futures::blocked, futures::fail, futures::add_in_callback,
             futures::callback_that_waits, futures::completes_another);

namespace futures {

int add_in_callback(int a, int b) {
  const sinew::Worker worker = sinew::current_worker();
  return worker.peer(0)
      .async<&add>(a, b)
      .then([worker](int sum) { return worker.peer(0).async<&add>(sum, 1); })
      .take();
}

int callback_that_waits(int a, int b) {
  const sinew::Worker worker = sinew::current_worker();
  return worker.peer(0)
      .async<&add>(a, b)
      .then([worker](int sum) { return worker.peer(0).call<&add>(sum, 1); })
      .take();
}

int completes_another(int value) {
  sinew::Promise<int> promise;
  sinew::current_worker().peer(0).async<&add>(value, 1).then(
      [promise](int sum) { promise.set_value(sum); });
  return promise.future().wait();
}

}  // namespace futures

namespace sinew {
namespace {

using ::testing::ElementsAre;
using testing::error_of;

MethodTable futures_table() {
  MethodTable methods;
  methods.add<&futures::add>()
      .add<&futures::blocked>()
      .add<&futures::fail>()
      .add<&futures::add_in_callback>()
      .add<&futures::callback_that_waits>()
      .add<&futures::completes_another>();
  return methods;
}

class FuturesTest : public testing::ClusterTest {
 protected:
  void SetUp() override {
    futures::gate.close();
    start(2, futures_table());
  }
  Peer callee() const { return worker(0).peer(1); }
};
SINEW_INSTANTIATE_CLUSTER_TEST(FuturesTest);

TEST_P(FuturesTest, ManyThreadsWaitForOneCall) {
  const Future<int> future = callee().async<&futures::blocked>();
  EXPECT_FALSE(future.done());
  std::atomic<int> sum{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { sum += future.wait(); });
  ASSERT_TRUE(futures::gate.wait_for_arrivals(1));
  EXPECT_FALSE(future.done());
  futures::gate.open();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 8);
  EXPECT_TRUE(future.done());
  EXPECT_EQ(future.value(), 1);
}

TEST_P(FuturesTest, WaitForLeavesTheCallAlone) {
  const Future<int> future = callee().async<&futures::blocked>();
  ASSERT_TRUE(futures::gate.wait_for_arrivals(1));
  const RpcError error = error_of([&] { future.wait_for(std::chrono::milliseconds(1)); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  futures::gate.open();
  EXPECT_EQ(future.wait(), 1);
}

TEST_P(FuturesTest, ContinuationsBeforeAndAfterTheResult) {
  const Future<int> future = callee().async<&futures::blocked>();
  const Future<int> before = future.then([](int value) { return value + 1; });
  futures::gate.open();
  EXPECT_EQ(before.wait(), 2);
  EXPECT_EQ(future.wait(), 1) << "still readable";
  EXPECT_EQ(future.then([](int value) { return value + 2; }).wait(), 3);
}

TEST_P(FuturesTest, ChainOfContinuations) {
  Future<int> future = callee().async<&futures::add>(0, 0);
  for (int i = 0; i < 20; ++i) future = future.then([](int value) { return value + 1; });
  EXPECT_EQ(future.wait(), 20);
}

TEST_P(FuturesTest, ContinuationsRunInTheirOrder) {
  const Future<int> future = callee().async<&futures::blocked>();
  std::mutex mutex;
  std::vector<int> order;
  std::vector<Future<void>> done;
  for (int i = 0; i < 10; ++i) {
    done.push_back(future.then([&, i](int) {
      std::lock_guard<std::mutex> lock(mutex);
      order.push_back(i);
    }));
  }
  futures::gate.open();
  wait_all(std::move(done));
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_P(FuturesTest, ErrorsPassThroughContinuations) {
  std::atomic<int> runs{0};
  const Future<int> last = callee()
                               .async<&futures::fail>(7)
                               .then([&](int value) { return ++runs, value; })
                               .then([&](int value) { return ++runs, value; });
  const RpcError error = error_of([&] { last.wait(); });
  EXPECT_EQ(error.remote_message(), "number 7");
  EXPECT_EQ(error.method(), "futures::fail");
  EXPECT_EQ(runs, 0);
  // The form that takes the future sees it.
  EXPECT_EQ(callee()
                .async<&futures::fail>(7)
                .then([](Future<int> failed) { return failed.error() != nullptr ? -1 : 0; })
                .wait(),
            -1);
}

TEST_P(FuturesTest, ErrorInAContinuation) {
  const Future<int> broken = callee().async<&futures::add>(1, 2).then(
      [](int) -> int { throw std::runtime_error("in the continuation"); });
  EXPECT_THROW(broken.wait(), std::runtime_error);
}

TEST_P(FuturesTest, NullContinuationsAreRefused) {
  const Future<int> future = callee().async<&futures::add>(1, 2);
  EXPECT_EQ(error_of([&] { future.then(std::function<int(int)>()); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { future.on_done(std::function<void()>()); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(future.wait(), 3);
}

TEST_P(FuturesTest, ErrorsOfDoneCallbacksAreSwallowed) {
  const Future<int> future = callee().async<&futures::add>(1, 2);
  future.on_done([] { throw std::runtime_error("lost"); });
  EXPECT_EQ(future.then([](int value) { return value; }).wait(), 3);
}

TEST_P(FuturesTest, ContinuationsMakeCalls) {
  EXPECT_EQ(callee().call<&futures::add_in_callback>(1, 2), 4);
  EXPECT_EQ(callee().call<&futures::callback_that_waits>(1, 2), 4);
  EXPECT_EQ(callee().call<&futures::completes_another>(1), 2);
  const Peer peer = callee();
  EXPECT_EQ(peer.async<&futures::add>(1, 2)
                .then([peer](int sum) { return peer.call<&futures::add>(sum, 1); })
                .wait(),
            4);
}

TEST_P(FuturesTest, WaitAllGivesValuesInOrder) {
  std::vector<Future<int>> all;
  for (int i = 0; i < 50; ++i) all.push_back(callee().async<&futures::add>(i, i));
  const std::vector<int> values = wait_all(std::move(all));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], 2 * i);
  EXPECT_TRUE(wait_all(std::vector<Future<int>>()).empty());
}

TEST_P(FuturesTest, WaitAllThrowsTheFirstErrorWhileAnotherIsStillBlocked) {
  const Future<int> blocked = callee().async<&futures::blocked>();
  ASSERT_TRUE(futures::gate.wait_for_arrivals(1));
  const RpcError error = error_of([&] {
    wait_all(std::vector<Future<int>>{blocked, callee().async<&futures::fail>(1),
                                      callee().async<&futures::add>(1, 1)});
  });
  EXPECT_EQ(error.remote_message(), "number 1");
  EXPECT_FALSE(blocked.done());
  futures::gate.open();
  EXPECT_EQ(blocked.wait(), 1);
}

TEST_P(FuturesTest, WaitAllNamesAnInvalidFuture) {
  const RpcError error = error_of([&] {
    wait_all(std::vector<Future<int>>{callee().async<&futures::add>(1, 1), Future<int>()});
  });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.message(), "element 1 of 2 futures is invalid");
}

TEST_P(FuturesTest, CallIsActiveUntilItEnds) {
  const Future<int> blocked = callee().async<&futures::blocked>();
  ASSERT_TRUE(futures::gate.wait_for_arrivals(1));
  EXPECT_EQ(worker(0).counters().at("rpc.client_active_calls"), 1);
  EXPECT_EQ(worker(1).counters().at("rpc.server_active_calls"), 1);
  futures::gate.open();
  blocked.wait();
  EXPECT_EVENTUALLY(worker(0).counters().at("rpc.client_active_calls"), 0);
  EXPECT_EVENTUALLY(worker(1).counters().at("rpc.server_active_calls"), 0);
}

TEST_P(FuturesTest, AbandonedFuturesDoNoHarm) {
  for (int i = 0; i < 100; ++i) callee().async<&futures::add>(i, 1);
  EXPECT_EQ(callee().call<&futures::add>(1, 1), 2);
}

// A Future is no value: it cannot be an argument; as a result it is the handler's way to answer
// later.
static_assert(!is_wire_type_v<Future<int>>);
static_assert(!is_wire_type_v<std::vector<Future<int>>>);

}  // namespace
}  // namespace sinew
