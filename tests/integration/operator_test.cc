// What a worker tells of itself while it works.

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "sinew/rpc/calls/state_report.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/tests/support/cluster.h"

namespace reporting {

int add(int a, int b) { return a + b; }
void fail() { throw std::runtime_error("as it was told to"); }

/// Called by one at a time.
class Sum {
 public:
  int add(int number) { return sum_ += number; }

 private:
  int sum_ = 0;
};

int by_way_of(const sinew::WorkerInfo& worker, int number);

}  // namespace reporting

SINEW_METHOD(reporting::add, reporting::fail, reporting::by_way_of);
SINEW_SERVICE(reporting::Sum, (), add);

int reporting::by_way_of(const sinew::WorkerInfo& worker, int number) {
  return sinew::current_worker().peer(worker).call<&reporting::add>(number, 1);
}

namespace sinew {
namespace {

using namespace std::chrono_literals;
using internal::StateReport;
using reporting::Sum;

const std::vector<std::string>& all_lists() {
  static const std::vector<std::string> lists = {"links",      "made_calls", "served_calls",
                                                 "references", "contexts",   "names",
                                                 "groups",     "gathers",    "methods"};
  return lists;
}

proto::WorkerState state_of(const Worker& worker) {
  StateReport report(all_lists(), internal::Clock::system().now());
  WorkerAccess::core(worker)->report(report);
  return report.state();
}

class Reports : public testing::ClusterTest {
 protected:
  void SetUp() override {
    MethodTable methods = serve<Sum>(one_at_a_time());
    methods.add<&reporting::add>().add<&reporting::fail>().add<&reporting::by_way_of>();
    start(3, std::move(methods));
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(Reports);

// Tables are read under the feet of calls, turns, references, barriers.
TEST_P(Reports, AreMadeWhileAllElseGoesOn) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> reports{0};
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      while (!stop) {
        const proto::WorkerState state = state_of(worker(i));
        EXPECT_EQ(state.worker().name(), worker(i).name());
        ++reports;
      }
    });
  }
  for (int round = 0; round < 30; ++round) {
    const RRef<Sum> sum = worker(0).peer("worker1").remote<Sum>();
    std::vector<Future<int>> calls;
    for (int i = 0; i < 20; ++i) {
      calls.push_back(sum.async<&Sum::add>(1));
      calls.push_back(worker(0).peer("worker2").async<&reporting::by_way_of>(worker(1).info(), i));
    }
    worker(2).publish("sum", std::make_shared<Sum>());
    EXPECT_THROW(worker(1).peer("worker0").call<&reporting::fail>(), RpcError);
    // One gives up.
    EXPECT_THROW(sum.within(1us).call<&Sum::add>(0), RpcError);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(calls[static_cast<std::size_t>(2 * i)].wait(), i + 1);
      EXPECT_EQ(calls[static_cast<std::size_t>(2 * i + 1)].wait(), i + 1);
    }
    worker(2).unpublish("sum");
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(reports, 3U);
}

TEST_P(Reports, CountEachCallOnce) {
  for (int i = 0; i < 7; ++i)
    EXPECT_EQ(worker(0).peer("worker1").call<&reporting::add>(i, 1), i + 1);
  EXPECT_THROW(worker(0).peer("worker1").call<&reporting::fail>(), RpcError);
  const proto::WorkerState state = state_of(worker(1));
  ASSERT_EQ(state.methods_size(), 2);
  for (const proto::MethodState& method : state.methods()) {
    const bool fails = method.name() == "reporting::fail";
    EXPECT_EQ(method.calls(), fails ? 1U : 7U);
    EXPECT_EQ(method.errors(), fails ? 1U : 0U);
    std::uint64_t counted = 0;
    for (const std::uint64_t count : method.by_power()) counted += count;
    EXPECT_EQ(counted, method.calls());
    EXPECT_GT(method.bytes(), 0U);
  }
}

// A list is cut, and says by how much.
TEST_P(Reports, AreBounded) {
  std::vector<RRef<Sum>> sums;
  for (std::size_t i = 0; i < StateReport::kMostOfOne + 5; ++i)
    sums.push_back(worker(0).peer("worker0").remote<Sum>());
  for (const RRef<Sum>& sum : sums) EXPECT_EQ(sum.call<&Sum::add>(1), 1);
  const proto::WorkerState state = state_of(worker(0));
  EXPECT_EQ(static_cast<std::size_t>(state.references_size()), StateReport::kMostOfOne);
  EXPECT_EQ(state.left_out().at("references"), 5U);
}

}  // namespace
}  // namespace sinew
