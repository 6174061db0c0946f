// Handlers that answer later.

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "sinew/tests/support/cluster.h"

namespace async_handlers {

sinew::testing::Gate gate;

int add(int a, int b) { return a + b; }
int quick() { return 1; }

/// Holds requests until somebody releases them.
class Parking {
 public:
  sinew::Future<int> park() {
    // First: who has seen it pass may give the promise away.
    const sinew::Future<int> answer = promise_.future();
    gate.pass();
    return answer;
  }
  sinew::Future<void> park_void() {
    return park().then([](int) {});
  }
  void release(int value) { promise_.set_value(value); }
  void fail() {
    promise_.set_error(sinew::RpcError(sinew::ErrorCode::kDataLoss, "the car was stolen"));
  }
  void abandon() { promise_ = sinew::Promise<int>(); }

 private:
  sinew::Promise<int> promise_;
};

/// Takes a gradient of each trainer, and answers all of them with the updated parameter at once.
class ParameterServer {
 public:
  explicit ParameterServer(int trainers) : trainers_(trainers) {}

  sinew::Future<at::Tensor> update(const at::Tensor& gradient) {
    std::unique_lock<std::mutex> lock(mutex_);
    sum_ = sum_.defined() ? sum_ + gradient : gradient;
    const sinew::Future<at::Tensor> updated = updated_->future();
    if (++arrived_ < trainers_) return updated;
    arrived_ = 0;
    parameter_ = parameter_ - sum_.to_dense() / trainers_;
    sum_ = at::Tensor();
    const auto all = std::exchange(updated_, std::make_unique<sinew::Promise<at::Tensor>>());
    const at::Tensor parameter = parameter_.clone();
    lock.unlock();
    all->set_value(parameter);
    return updated;
  }

 private:
  const int trainers_;
  std::mutex mutex_;
  int arrived_ = 0;
  at::Tensor sum_;
  at::Tensor parameter_ = at::zeros({4, 2});
  std::unique_ptr<sinew::Promise<at::Tensor>> updated_ =
      std::make_unique<sinew::Promise<at::Tensor>>();
};

sinew::Future<int> add_at(int rank, int a, int b);
sinew::Future<int> sum_of_all();
sinew::Future<std::string> method_in_continuation();
sinew::Future<sinew::RRef<int>> make_at(int rank, int a, int b);
sinew::Future<int> hop(int hops);

struct Forwarder {
  static sinew::Future<int> by_static(int a, int b);
  sinew::Future<int> by_member(int a, int b) const;
};

}  // namespace async_handlers

SINEW_METHOD(async_handlers::add, async_handlers::quick);
SINEW_SERVICE(async_handlers::Parking, ());
SINEW_METHOD(async_handlers::Parking::park, async_handlers::Parking::park_void,
             async_handlers::Parking::release, async_handlers::Parking::fail,
             async_handlers::Parking::abandon);
SINEW_SERVICE(async_handlers::ParameterServer, (int));
SINEW_METHOD(async_handlers::ParameterServer::update, async_handlers::add_at,
             async_handlers::sum_of_all, async_handlers::method_in_continuation,
             async_handlers::make_at, async_handlers::hop);
SINEW_SERVICE(async_handlers::Forwarder, ());
SINEW_METHOD(async_handlers::Forwarder::by_static, async_handlers::Forwarder::by_member);

namespace async_handlers {

sinew::Future<int> add_at(int rank, int a, int b) {
  return sinew::current_worker().peer(rank).async<&add>(a, b);
}
sinew::Future<int> Forwarder::by_static(int a, int b) { return add_at(2, a, b); }
sinew::Future<int> Forwarder::by_member(int a, int b) const { return add_at(2, a, b); }

sinew::Future<int> sum_of_all() {
  const sinew::Worker worker = sinew::current_worker();
  std::vector<sinew::Future<int>> parts;
  for (const sinew::WorkerInfo& peer : worker.workers()) {
    parts.push_back(worker.peer(peer).async<&add>(peer.rank, 1));
  }
  return sinew::collect_all(std::move(parts)).then([](const std::vector<int>& values) {
    int sum = 0;
    for (const int value : values) sum += value;
    return sum;
  });
}

sinew::Future<std::string> method_in_continuation() {
  const sinew::Worker worker = sinew::current_worker();
  return worker.peer(0).async<&quick>().then([worker](int) {
    const sinew::CallContext& call = sinew::CallContext::current();
    return call.method() + " at " + call.worker().name() + " for " + call.caller().name;
  });
}

sinew::Future<sinew::RRef<int>> make_at(int rank, int a, int b) {
  const auto sum = sinew::current_worker().peer(rank).remote<&add>(a, b);
  return sum.created().then([sum] { return sum; });
}

sinew::Future<int> hop(int hops) {
  if (hops == 0) return sinew::make_ready_future(0);
  const sinew::Worker worker = sinew::current_worker();
  const int next = (worker.rank() + 1) % static_cast<int>(worker.workers().size());
  return worker.peer(next).async<&hop>(hops - 1).then([](int below) { return below + 1; });
}

}  // namespace async_handlers

namespace sinew {
namespace {

using async_handlers::Forwarder;
using async_handlers::ParameterServer;
using async_handlers::Parking;
using testing::error_of;
using testing::eventually;

MethodTable async_handlers_table() {
  MethodTable methods;
  methods.add<&async_handlers::add>()
      .add<&async_handlers::quick>()
      .serve<Parking>()
      .add<&Parking::park>()
      .add<&Parking::park_void>()
      .add<&Parking::release>()
      .add<&Parking::fail>()
      .add<&Parking::abandon>()
      .serve<ParameterServer>()
      .add<&ParameterServer::update>()
      .add<&async_handlers::add_at>()
      .add<&async_handlers::sum_of_all>()
      .add<&async_handlers::method_in_continuation>()
      .add<&async_handlers::make_at>()
      .add<&async_handlers::hop>()
      .serve<Forwarder>()
      .add<&Forwarder::by_static>()
      .add<&Forwarder::by_member>();
  return methods;
}

class AsyncHandlersTest : public testing::ClusterTest {
 protected:
  void SetUp() override {
    async_handlers::gate.close();
    async_handlers::gate.open();
    start(3, async_handlers_table(), [](int, WorkerOptions& options) { options.num_threads = 2; });
  }
  Peer callee() const { return worker(0).peer(1); }
};
SINEW_INSTANTIATE_CLUSTER_TEST(AsyncHandlersTest);

TEST_P(AsyncHandlersTest, AnswerOfAThirdWorker) {
  EXPECT_EQ(callee().call<&async_handlers::add_at>(2, 3, 4), 7);
  EXPECT_EQ(callee().async<&async_handlers::add_at>(2, 3, 4).take(), 7);
  EXPECT_EQ(callee().remote<&async_handlers::add_at>(2, 3, 4).to_here(), 7);
  EXPECT_EQ(callee().call<&async_handlers::add_at>(0, 3, 4), 7) << "of the caller";
  EXPECT_EQ(callee().call<&async_handlers::add_at>(1, 3, 4), 7) << "of itself";
  std::vector<RRef<int>> kept;
  for (int i = 0; i < 20; ++i) kept.push_back(callee().remote<&async_handlers::add_at>(2, i, 1));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(kept[static_cast<std::size_t>(i)].to_here(), i + 1);
}

TEST_P(AsyncHandlersTest, StaticAndOrdinaryMembers) {
  EXPECT_EQ(callee().call<&Forwarder::by_static>(1, 2), 3);
  EXPECT_EQ(callee().remote<&Forwarder::by_static>(1, 2).to_here(), 3);
  const auto forwarder = callee().remote<Forwarder>();
  EXPECT_EQ(forwarder.call<&Forwarder::by_member>(1, 2), 3);
  EXPECT_EQ(forwarder.async<&Forwarder::by_member>(1, 2).take(), 3);
  EXPECT_EQ(forwarder.remote<&Forwarder::by_member>(1, 2).to_here(), 3);
}

TEST_P(AsyncHandlersTest, PendingAnswersHoldNoThread) {
  constexpr int kPending = 200;
  const auto parking = callee().remote<Parking>();
  std::vector<Future<int>> parked;
  for (int i = 0; i < kPending; ++i) parked.push_back(parking.async<&Parking::park>());
  ASSERT_TRUE(async_handlers::gate.wait_for_arrivals(kPending));
  // The creating call counts until its own thread is through with it.
  EXPECT_EVENTUALLY(worker(1).counters().at("rpc.server_active_calls"), kPending);
  EXPECT_EQ(worker(1).counters().at("rpc.blocked_threads"), 0);
  EXPECT_LT(worker(1).counters().at("rpc.threads"), 20);
  EXPECT_EQ(worker(1).counters().at("rpc.max_threads"), 2);
  EXPECT_EQ(callee().call<&async_handlers::quick>(), 1);
  parking.call<&Parking::release>(5);
  for (const int value : wait_all(std::move(parked))) EXPECT_EQ(value, 5);
}

TEST_P(AsyncHandlersTest, VoidAnswers) {
  const auto parking = callee().remote<Parking>();
  const Future<void> parked = parking.async<&Parking::park_void>();
  const auto kept = parking.remote<&Parking::park_void>();
  ASSERT_TRUE(async_handlers::gate.wait_for_arrivals(2));
  EXPECT_FALSE(parked.done());
  parking.call<&Parking::release>(5);
  parked.wait();
  EXPECT_EQ(kept.to_here(), std::monostate());
}

TEST_P(AsyncHandlersTest, AnswersThatFail) {
  const auto parking = callee().remote<Parking>();
  const Future<int> parked = parking.async<&Parking::park>();
  const auto kept = parking.remote<&Parking::park>();
  ASSERT_TRUE(async_handlers::gate.wait_for_arrivals(2));
  parking.call<&Parking::fail>();
  for (const RpcError& error :
       {error_of([&] { parked.wait(); }), error_of([&] { kept.to_here(); })}) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_EQ(error.message(), "the car was stolen");
    EXPECT_EQ(error.execution(), Execution::kMayHaveRun);
  }
}

TEST_P(AsyncHandlersTest, AnswerThatNobodyGivesIsAnError) {
  const auto parking = callee().remote<Parking>();
  const Future<int> parked = parking.async<&Parking::park>();
  ASSERT_TRUE(async_handlers::gate.wait_for_arrivals(1));
  parking.call<&Parking::abandon>();
  EXPECT_EQ(error_of([&] { parked.wait(); }).code(), ErrorCode::kCancelled);
}

TEST_P(AsyncHandlersTest, AnswerAfterTheTimeIsDropped) {
  const auto parking = callee().remote<Parking>();
  CallOptions options;
  options.timeout = std::chrono::milliseconds(30);
  EXPECT_EQ(error_of([&] { parking.with(options).call<&Parking::park>(); }).code(),
            ErrorCode::kDeadlineExceeded);
  parking.call<&Parking::release>(1);
  EXPECT_EQ(parking.call<&Parking::park>(), 1);
  EXPECT_TRUE(eventually([&] { return worker(1).counters().at("rpc.server_active_calls") == 0; }));
}

TEST_P(AsyncHandlersTest, FanOut) {
  EXPECT_EQ(callee().call<&async_handlers::sum_of_all>(), 0 + 1 + 2 + 3);
}

TEST_P(AsyncHandlersTest, ContinuationsKnowTheCallThatTheyBelongTo) {
  EXPECT_EQ(callee().call<&async_handlers::method_in_continuation>(),
            "async_handlers::method_in_continuation at worker1 for worker0");
}

TEST_P(AsyncHandlersTest, ReferenceAsALateAnswer) {
  const RRef<int> sum = callee().call<&async_handlers::make_at>(2, 3, 4);
  EXPECT_EQ(sum.owner_name(), "worker2");
  EXPECT_EQ(sum.to_here(), 7);
  EXPECT_EQ(callee().call<&async_handlers::make_at>(0, 3, 4).to_here(), 7) << "back at its owner";
}

TEST_P(AsyncHandlersTest, LongChains) { EXPECT_EQ(callee().call<&async_handlers::hop>(300), 300); }

TEST_P(AsyncHandlersTest, BatchUpdatingParameterServer) {
  constexpr int kTrainers = 3;
  constexpr int kRounds = 5;
  for (const bool sparse : {false, true}) {
    const auto server = share_rref(worker(0), std::make_shared<ParameterServer>(kTrainers));
    for (int round = 1; round <= kRounds; ++round) {
      std::vector<Future<at::Tensor>> updates;
      for (int trainer = 0; trainer < kTrainers; ++trainer) {
        at::Tensor gradient = at::full({4, 2}, trainer + 1.0);
        if (sparse) gradient = gradient.to_sparse();
        for (const Future<at::Tensor>& update : updates) EXPECT_FALSE(update.done());
        updates.push_back(server.async<&ParameterServer::update>(gradient));
      }
      for (const at::Tensor& parameter : wait_all(std::move(updates))) {
        EXPECT_TRUE(at::equal(parameter, at::full({4, 2}, -2.0 * round)));
      }
    }
  }
}

}  // namespace
}  // namespace sinew
