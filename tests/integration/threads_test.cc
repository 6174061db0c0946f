// What a worker with few threads still does.

#include <pthread.h>
#include <thread>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "sinew/link.pb.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/faulty_transport.h"

namespace threads {

sinew::testing::Gate gate;

int quick() { return 1; }
std::string name_of_thread() {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  return name;
}
int blocked() {
  gate.pass();
  return 1;
}
int around(int hops);
int blocked_at_next();
void shut_down() { sinew::current_worker().shutdown(); }

/// Requests that are parked here hold no thread.
sinew::Promise<int>* parked = nullptr;
sinew::Future<int> park() {
  gate.pass();
  return parked->future();
}

}  // namespace threads

SINEW_METHOD(threads::quick, threads::name_of_thread, threads::blocked, threads::around,
             threads::blocked_at_next, threads::shut_down, threads::park);

namespace threads {

sinew::Peer next_peer() {
  const sinew::Worker worker = sinew::current_worker();
  return worker.peer((worker.rank() + 1) % static_cast<int>(worker.workers().size()));
}

std::atomic<int> rounds_ended{0};

int around(int hops) {
  if (hops > 0) return 1 + next_peer().call<&around>(hops - 1);
  ++rounds_ended;
  return 0;
}

int blocked_at_next() { return next_peer().call<&park>(); }

}  // namespace threads

namespace sinew {
namespace {

using testing::error_of;
using testing::eventually;
using ::testing::HasSubstr;

MethodTable threads_table() {
  MethodTable methods;
  methods.add<&threads::quick>()
      .add<&threads::name_of_thread>()
      .add<&threads::blocked>()
      .add<&threads::around>()
      .add<&threads::blocked_at_next>()
      .add<&threads::shut_down>()
      .add<&threads::park>();
  return methods;
}

class ThreadsTest : public testing::ClusterTest {
 protected:
  void SetUp() override { threads::gate.close(); }
  void TearDown() override {
    threads::gate.open();
    ClusterTest::TearDown();
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(ThreadsTest);

TEST_P(ThreadsTest, RingOfWorkersWithOneThreadEachNestsFiftyDeep) {
  start(3, threads_table(), [](int, WorkerOptions& options) { options.num_threads = 1; });
  EXPECT_EQ(worker(0).peer(1).call<&threads::around>(50), 50);
  EXPECT_EQ(worker(0).peer(0).call<&threads::around>(50), 50);
}

// Who waits may poll, and who polls may run the handler: over gRPC, where there is something to
// poll.
TEST_P(ThreadsTest, PollingIsADutyOfThoseWhoWaitAndServe) {
  start(2, threads_table());
  const auto& core = WorkerAccess::core(worker(0));
  const auto duty = core->transport().polling_duty();
  EXPECT_EQ(core->executor()->runner()->polling_duty(), duty.get());
  EXPECT_EQ(core->control_executor().runner()->polling_duty(), duty.get());
  if (GetParam() == testing::ClusterTransport::kInproc) {
    EXPECT_EQ(duty, nullptr);
  } else {
    ASSERT_NE(duty, nullptr);
    EXPECT_EVENTUALLY(worker(0).peer(1).call<&threads::name_of_thread>(), "sinew-grpc");
  }
}

TEST_P(ThreadsTest, WhoMustNotPollSleeps) {
  start(2, threads_table(),
        [](int, WorkerOptions& options) { options.max_poll = std::chrono::nanoseconds(0); });
  for (int i = 0; i < 1000; ++i) worker(0).peer(1).call<&threads::quick>();
  std::map<std::string, std::int64_t> counters = worker(0).counters();
  EXPECT_EQ(counters.count("rpc.polls_paid"),
            GetParam() == testing::ClusterTransport::kInproc ? 0U : 1U);
  EXPECT_EQ(counters["rpc.polls_paid"] + counters["rpc.polls_in_vain"], 0);
  EXPECT_EQ(counters["rpc.polled_us"], 0);
}

TEST_P(ThreadsTest, TheEnvironmentBoundsPollingOfTheProcess) {
  ::setenv("SINEW_MAX_POLL_US", "0", 1);
  start(2, threads_table());
  ::unsetenv("SINEW_MAX_POLL_US");
  for (int i = 0; i < 1000; ++i) worker(0).peer(1).call<&threads::quick>();
  EXPECT_EQ(worker(0).counters()["rpc.polled_us"], 0);
}

TEST_P(ThreadsTest, WhoMayPollDoesWhereAnswersFollowEachOtherClosely) {
  start(2, threads_table());
  if (GetParam() == testing::ClusterTransport::kInproc) return;
  EXPECT_TRUE(eventually([&] {
    std::vector<Future<int>> calls;
    for (int i = 0; i < 64; ++i) calls.push_back(worker(0).peer(1).async<&threads::quick>());
    for (const Future<int>& call : calls) call.wait();
    std::map<std::string, std::int64_t> counters = worker(0).counters();
    // On one core none may ever pay.
    return counters["rpc.polls_paid"] + counters["rpc.polls_in_vain"] > 0;
  }));
}

TEST_P(ThreadsTest, SeveralRingsAtOnce) {
  start(3, threads_table(), [](int, WorkerOptions& options) { options.num_threads = 1; });
  std::vector<Future<int>> rings;
  for (int rank = 0; rank < 3; ++rank) {
    rings.push_back(worker(rank).peer((rank + 1) % 3).async<&threads::around>(30));
    rings.push_back(worker(rank).peer(rank).async<&threads::around>(20));
  }
  EXPECT_THAT(wait_all(std::move(rings)), ::testing::ElementsAre(30, 20, 30, 20, 30, 20));
}

TEST_P(ThreadsTest, OneWorkerWithOneThreadCallsItself) {
  start(1, threads_table(), [](int, WorkerOptions& options) { options.num_threads = 1; });
  EXPECT_EQ(worker(0).peer(0).call<&threads::around>(50), 50);
}

TEST_P(ThreadsTest, TooManyBlockedThreadsIsAnErrorThatShowsTheChain) {
  start(2, threads_table(), [](int, WorkerOptions& options) {
    options.num_threads = 1;
    options.max_blocked_threads = 4;
  });
  threads::rounds_ended = 0;
  const RpcError error = error_of([&] { worker(0).peer(1).call<&threads::around>(50); });
  EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(error.execution(), Execution::kMayHaveRun);
  EXPECT_THAT(error.message(),
              HasSubstr("4 tasks are blocked in a wait already (max_blocked_threads)"));
  EXPECT_THAT(error.message(), HasSubstr("call chain: threads::around -> threads::around"));
  // Who may not wait has called already: the calls go on to the last one, which nobody waits for.
  EXPECT_TRUE(eventually([] { return threads::rounds_ended == 1; }));
  // Nothing is stuck.
  EXPECT_EVENTUALLY(worker(0).counters().at("rpc.blocked_threads"), 0);
  EXPECT_EVENTUALLY(worker(1).counters().at("rpc.blocked_threads"), 0);
  EXPECT_EQ(worker(0).peer(1).call<&threads::around>(5), 5);
}

TEST_P(ThreadsTest, ManyMoreWaitingHandlersThanThreads) {
  start(2, threads_table(), [](int, WorkerOptions& options) { options.num_threads = 2; });
  threads::gate.open();
  Promise<int> promise;
  threads::parked = &promise;
  std::vector<Future<int>> waiting;
  for (int i = 0; i < 60; ++i)
    waiting.push_back(worker(0).peer(0).async<&threads::blocked_at_next>());
  ASSERT_TRUE(threads::gate.wait_for_arrivals(60));
  EXPECT_EQ(worker(1).peer(0).call<&threads::quick>(), 1) << "others are served meanwhile";
  promise.set_value(3);
  for (const int value : wait_all(std::move(waiting))) EXPECT_EQ(value, 3);
}

TEST_P(ThreadsTest, ShutdownInAHandlerIsRefused) {
  start(2, threads_table());
  const RpcError error = error_of([&] { worker(0).peer(1).call<&threads::shut_down>(); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("own handler"));
  EXPECT_EQ(worker(0).peer(1).call<&threads::quick>(), 1);
}

TEST_P(ThreadsTest, ControlPassesWhileEveryThreadIsBlocked) {
  std::atomic<int> beats{0};
  testing::ClusterOptions options;
  options.methods = threads_table();
  options.tweak = [](int, WorkerOptions& worker) {
    worker.num_threads = 2;
    worker.heartbeat_interval = std::chrono::milliseconds(50);
  };
  const auto plan = std::make_shared<internal::FaultPlan>(1);
  internal::FaultRule watch;  // Hits nothing: it only looks.
  watch.matches = [&beats](const internal::FaultyFrame& frame) {
    proto::LinkHeader header;
    if (frame.direction == internal::FaultDirection::kIncoming &&
        header.ParseFromArray(frame.frame.header.data(),
                              static_cast<int>(frame.frame.header.size())) &&
        header.beat_reply() != 0) {
      ++beats;
    }
    return false;
  };
  plan->add(std::move(watch));
  sinew::testing::wrap_transports(
      options, [&plan](int rank, std::unique_ptr<internal::Transport> transport) {
        return rank == 0 ? internal::make_faulty_transport(std::move(transport), plan)
                         : std::move(transport);
      });
  start(std::move(options));

  auto kept = worker(0).peer(1).remote<&threads::quick>();
  EXPECT_EQ(kept.to_here(), 1);
  ASSERT_EQ(worker(1).counters().at("rref.owned"), 1);

  std::vector<Future<int>> blocked;
  for (int i = 0; i < 6; ++i) blocked.push_back(worker(0).peer(1).async<&threads::blocked>());
  ASSERT_TRUE(threads::gate.wait_for_arrivals(2)) << "both threads of worker1 sit at the gate";

  // Heartbeats.
  const int before = beats;
  EXPECT_TRUE(eventually([&] { return beats >= before + 3; }));
  EXPECT_TRUE(worker(0).peer(1).alive());
  // References.
  kept = {};
  EXPECT_TRUE(eventually([&] { return worker(1).counters().at("rref.owned") == 0; }));
  // Barriers and all-gathers.
  std::thread other([this] { worker(1).barrier(); });
  worker(0).barrier();
  other.join();

  EXPECT_EQ(threads::gate.arrivals(), 2);
  threads::gate.open();
  wait_all(std::move(blocked));
}

TEST_P(ThreadsTest, AnswersArriveWhileEveryThreadOfTheCallerIsBlocked) {
  start(2, threads_table(), [](int, WorkerOptions& options) { options.num_threads = 1; });
  const Future<int> blocked = worker(1).peer(0).async<&threads::blocked>();
  ASSERT_TRUE(threads::gate.wait_for_arrivals(1));
  EXPECT_EQ(worker(0).peer(1).call<&threads::quick>(), 1);
  CallOptions options;
  options.timeout = std::chrono::milliseconds(30);
  EXPECT_EQ(error_of([&] {
              worker(0).peer(worker(0).self().with(options)).call<&threads::quick>();
            }).code(),
            ErrorCode::kDeadlineExceeded)
      << "timeouts need no thread of the pool";
  threads::gate.open();
  EXPECT_EQ(blocked.wait(), 1);
}

}  // namespace
}  // namespace sinew
