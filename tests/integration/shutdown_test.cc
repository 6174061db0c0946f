// How workers end together, alone, and when one of them does not come.

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/transport/inproc/inproc_network.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/gather.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::ShutdownOptions;
using sinew::Worker;
using sinew::testing::error_of;
using sinew::testing::eventually;
using sinew::testing::gather;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

namespace integration {
void relay(int hops);
int slow_sum(int n);
void call_for_ever(int other);
void meet();
}  // namespace integration
SINEW_METHOD(integration::relay, integration::slow_sum, integration::call_for_ever,
             integration::meet);

namespace integration {

/// Calls that follow from each other; nobody waits for their answers.
void relay(int hops) {
  if (hops == 0) {
    testapp::count(0);
    return;
  }
  const Worker worker = sinew::current_worker();
  const int next = (worker.rank() + 1) % static_cast<int>(worker.workers().size());
  worker.peer(next).async<&relay>(hops - 1);
}
int slow_sum(int n) {
  int sum = 0;
  const Worker worker = sinew::current_worker();
  for (int i = 0; i < n; ++i) sum = worker.peer(worker.self()).call<&testapp::add>(sum, i);
  return sum;
}
std::atomic<int> calls_made{0};
void call_for_ever(int other) {
  const Worker worker = sinew::current_worker();
  while (true) {
    worker.peer(other).call<&testapp::add>(1, 2);
    ++calls_made;
  }
}

std::atomic<int> meetings_missed{0};
void meet() {
  try {
    sinew::current_worker().barrier(60s);
  } catch (const RpcError& error) {
    if (error.code() == ErrorCode::kDeadlineExceeded) ++meetings_missed;
    throw;
  }
}

}  // namespace integration

namespace {

class Shutdown : public sinew::testing::ClusterTest {
 protected:
  void start_all(int size = 3, std::function<void(int, sinew::WorkerOptions&)> tweak = nullptr) {
    sinew::MethodTable table = testapp::methods();
    table.add<&integration::relay, &integration::slow_sum, &integration::call_for_ever,
              &integration::meet>();
    start(size, std::move(table), std::move(tweak));
  }
  static ShutdownOptions graceful(std::chrono::nanoseconds timeout) {
    return {true, timeout, false};
  }
  static ShutdownOptions hard() { return {false, 60s, false}; }
};
SINEW_INSTANTIATE_CLUSTER_TEST(Shutdown);

TEST_P(Shutdown, WithoutAnyTraffic) { start_all(); }

TEST_P(Shutdown, OfOneWorkerAlone) {
  start_all(1);
  EXPECT_EQ(worker(0).peer(0).call<&testapp::add>(1, 2), 3);
  EXPECT_EQ(worker(0).self().remote<&testapp::add>(1, 2).to_here(), 3);
}

TEST_P(Shutdown, AWorkerThatComesEarlyServesTheOthers) {
  start_all();
  std::thread early([&] { worker(2).shutdown(graceful(60s)); });
  for (int phase = 0; phase < 2; ++phase) {
    std::vector<sinew::Future<int>> calls;
    for (int i = 0; i < 15; ++i)
      calls.push_back(worker(i % 2).peer(2).async<&integration::slow_sum>(20));
    for (const int sum : sinew::wait_all(std::move(calls))) EXPECT_EQ(sum, 190);
  }
  std::thread other([&] { worker(1).shutdown(graceful(60s)); });
  worker(0).shutdown(graceful(60s));
  early.join();
  other.join();
}

TEST_P(Shutdown, WaitsForCallsThatFollowFromCalls) {
  start_all();
  worker(0).peer(1).call<&integration::relay>(40);
  const Worker last = worker((1 + 40) % 3);
  finish();
  EXPECT_EQ(testapp::state_of(last).executions[0], 1);
}

// That the owner has heard of a reference's end is known without a heartbeat that says so: beats
// come a minute apart here. Nothing else is said between the two workers.
TEST_P(Shutdown, WaitsForNoHeartbeat) {
  start_all(3, [](int, sinew::WorkerOptions& options) {
    options.heartbeat_interval = 60s;
    options.lease = 600s;
  });
  for (int i = 0; i < 3; ++i) {
    const auto counter = worker(2).peer(1).remote<testapp::Counter>(1);
    counter.created().wait();
  }
  EXPECT_TRUE(eventually([&] { return worker(1).counters()["rref.owned"] == 0; }));
  const auto last = worker(2).peer(1).remote<testapp::Counter>(1);
  last.created().wait();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([this, rank] {
      EXPECT_NO_THROW(worker(rank).shutdown({true, 20s, /*fail_on_leaks=*/true})) << rank;
    });
  }
  for (std::thread& thread : threads) thread.join();
  abandon();
}

// Nor is it that a result has arrived. In an open job nothing else is said at the end.
TEST_P(Shutdown, WaitsForNoHeartbeatAfterItsLastResult) {
  start_all(2, [](int, sinew::WorkerOptions& options) {
    options.world_size.reset();
    options.heartbeat_interval = 60s;
    options.lease = 600s;
  });
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
  EXPECT_NO_THROW(worker(1).shutdown(graceful(20s)));
  abandon();
}

TEST_P(Shutdown, IsIdempotent) {
  start_all();
  const Worker first = worker(0);
  finish();
  EXPECT_FALSE(first.is_running());
  EXPECT_NO_THROW(first.shutdown());
  EXPECT_NO_THROW(first.shutdown({false, 1s, false}));
}

TEST_P(Shutdown, FromSeveralThreadsAtOnce) {
  start_all(2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] { EXPECT_NO_THROW(worker(i % 2).shutdown(graceful(60s))); });
  for (std::thread& thread : threads) thread.join();
}

// As that of a worker which is told to leave while it waits for the others' end.
TEST_P(Shutdown, HardEndsAGracefulOneThatWaits) {
  for (const int leaver : {0, 1}) {
    start_all();
    std::promise<void> begins;
    std::thread waiting([&] {
      begins.set_value();
      try {
        worker(leaver).shutdown(graceful(20s));  // nothing to wait for if the other one was first
      } catch (const RpcError& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCancelled) << error.what();
        EXPECT_THAT(error.message(), HasSubstr("'" + worker(leaver).name() + "' was shut down"));
      }
    });
    begins.get_future().wait();
    // It waits, or is about to.
    const Worker other = worker(2);
    EXPECT_EQ(other.peer(leaver).call<&testapp::add>(1, 2), 3);
    worker(leaver).shutdown(hard());
    waiting.join();
    EXPECT_FALSE(worker(leaver).is_running());
    // The others go on, and end together.
    EXPECT_TRUE(eventually([&] { return other.workers().size() == 2; }));
    EXPECT_EQ(other.peer(1 - leaver).call<&testapp::add>(1, 2), 3);
    std::thread third([&] { EXPECT_NO_THROW(other.shutdown(graceful(60s))); });
    EXPECT_NO_THROW(worker(1 - leaver).shutdown(graceful(60s)));
    third.join();
    abandon();
  }
}

// The handler fails at once when its worker begins to end, before the others are told of that.
TEST_P(Shutdown, AHandlerThatFailsWithItsWorkerIsNotToBlame) {
  start_all();
  integration::calls_made = 0;
  const auto answer = worker(0).peer(1).async<&integration::call_for_ever>(2);
  ASSERT_TRUE(eventually([] { return integration::calls_made > 10; }));
  worker(1).shutdown(hard());
  const RpcError error = error_of([&] { answer.wait(); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
  EXPECT_EQ(error.origin(), sinew::ErrorOrigin::kNetwork) << error.what();
  EXPECT_EQ(error.execution(), sinew::Execution::kMayHaveRun) << error.what();
  abandon();
}

TEST_P(Shutdown, CallsAfterItSaySo) {
  start_all(2);
  const sinew::Peer peer = worker(0).peer(1);
  const Worker first = worker(0);
  finish();
  EXPECT_THAT(error_of([&] { peer.call<&testapp::add>(1, 2); }).message(), HasSubstr("shut down"));
  EXPECT_THAT(error_of([&] { first.peer("worker1").call<&testapp::add>(1, 2); }).message(),
              HasSubstr("shut down"));
  EXPECT_THAT(error_of([&] { peer.remote<&testapp::add>(1, 2); }).message(),
              HasSubstr("shut down"));
  const RpcError barrier = error_of([&] { first.barrier({"worker0", "worker1"}, 60s); });
  EXPECT_EQ(barrier.code(), ErrorCode::kFailedPrecondition) << barrier.what();
  EXPECT_THAT(barrier.message(), HasSubstr("'worker0' was shut down"));
}

TEST_P(Shutdown, HardEndsABarrierThatWaits) {
  // Of the one who leads it, and of another.
  for (const int leaver : {0, 1}) {
    start_all(2);
    // Begins it here, so that it has begun.
    const auto barrier = sinew::WorkerAccess::core(worker(leaver))
                             ->membership()
                             .all_gather_async({"worker0", "worker1"}, {}, 60s);
    worker(leaver).shutdown(hard());
    const RpcError error = error_of([&] { barrier.wait_for(60s); });
    EXPECT_EQ(error.code(), ErrorCode::kCancelled) << error.what();
    EXPECT_THAT(error.message(), HasSubstr("'" + worker(leaver).name() + "' was shut down"));
    abandon();
  }
}

// As one does that comes to shut down when its time is over.
TEST_P(Shutdown, WithoutTimeForGraceEndsTheWorkerAllTheSame) {
  start_all();
  for (const auto timeout : {0ns, -5ns}) {
    const Worker& ending = worker(timeout == 0ns ? 0 : 1);
    const RpcError error = error_of([&] { ending.shutdown(graceful(timeout)); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr("ShutdownOptions::timeout must be positive"));
    EXPECT_FALSE(ending.is_running());
    EXPECT_NO_THROW(ending.shutdown(graceful(60s)));
  }
  EXPECT_TRUE(worker(2).is_running());
  abandon();
}

TEST_P(Shutdown, TimesOutWithTheNamesOfThoseWhoDidNotCome) {
  start_all();
  std::thread other([&] {
    const RpcError error = error_of([&] { worker(1).shutdown(graceful(3s)); });
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    EXPECT_THAT(error.message(), AnyOf(HasSubstr("worker2"), HasSubstr("worker0")));
    EXPECT_FALSE(worker(1).is_running());
  });
  const RpcError error = error_of([&] { worker(0).shutdown(graceful(3s)); });
  other.join();
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(error.message(), HasSubstr("'worker2' had not come after"));
  EXPECT_THAT(error.message(), HasSubstr("graceful shutdown of worker 'worker0' failed"));
  EXPECT_FALSE(worker(0).is_running());
  EXPECT_TRUE(worker(2).is_running());
  EXPECT_EQ(worker(2).peer(2).call<&testapp::add>(1, 2), 3);
  worker(2).shutdown(hard());
  abandon();
}

TEST_P(Shutdown, TimesOutOnACallThatDoesNotEnd) {
  start_all(2);
  const auto stuck = worker(0).peer(1).with({sinew::kNoTimeout, {}});
  const auto call = stuck.async<&testapp::stall>();
  ASSERT_TRUE(eventually([&] { return worker(0).peer(1).call<&testapp::stalled>() == 1; }));
  std::thread other([&] {
    EXPECT_EQ(error_of([&] { worker(1).shutdown(graceful(3s)); }).code(),
              ErrorCode::kDeadlineExceeded);
  });
  const RpcError error = error_of([&] { worker(0).shutdown(graceful(3s)); });
  other.join();
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(error.message(), HasSubstr("waited for calls to end"));
  // Whichever of the two gave up first.
  EXPECT_THAT(error_of([&] { call.wait(); }).code(),
              AnyOf(ErrorCode::kCancelled, ErrorCode::kUnavailable));
  testapp::drop_stalled(worker(1));
  abandon();
}

TEST_P(Shutdown, GoesOnWithoutADeadMember) {
  start_all();
  worker(2).shutdown(hard());
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
}

TEST_P(Shutdown, GoesOnWhenAMemberDiesMeanwhile) {
  start_all();
  std::thread zero([&] { EXPECT_NO_THROW(worker(0).shutdown(graceful(60s))); });
  std::thread one([&] { EXPECT_NO_THROW(worker(1).shutdown(graceful(60s))); });
  // Both wait for worker 2 now, or soon.
  worker(2).shutdown(hard());
  zero.join();
  one.join();
}

TEST_P(Shutdown, HardEndsPendingCallsAtBothEnds) {
  start_all(2);
  const auto call = worker(0).peer(1).async<&testapp::stall>();
  const auto back = worker(1).peer(0).async<&testapp::stall>();
  ASSERT_TRUE(eventually([&] { return worker(0).peer(1).call<&testapp::stalled>() == 1; }));
  ASSERT_TRUE(eventually([&] { return worker(1).peer(0).call<&testapp::stalled>() == 1; }));
  worker(1).shutdown(hard());
  const RpcError error = error_of([&] { call.wait_for(60s); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
  EXPECT_EQ(error.execution(), sinew::Execution::kMayHaveRun);
  EXPECT_EQ(error_of([&] { back.wait_for(60s); }).code(), ErrorCode::kCancelled);
  testapp::drop_stalled(worker(0));
  testapp::drop_stalled(worker(1));
  worker(0).shutdown(hard());
  abandon();
}

TEST_P(Shutdown, StartsAgainAfterwards) {
  for (int round = 0; round < 3; ++round) {
    start_all(2);
    EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(round, 1), round + 1);
    finish();
  }
}

TEST_P(Shutdown, InAHandlerIsRefused) {
  start_all(1);
  const Worker self = worker(0);
  sinew::Future<int> call = self.peer(0).async<&testapp::add>(1, 2);
  const auto refused = call.then(
      [self](int) { return static_cast<int>(error_of([&] { self.shutdown(); }).code()); });
  EXPECT_EQ(refused.wait(), static_cast<int>(ErrorCode::kFailedPrecondition));
}

// ---- Barriers and gathers, on which shutdown stands.

TEST_P(Shutdown, BarrierAndGatherOfAllAndOfSubsets) {
  start_all(4);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      const Worker self = worker(rank);
      self.barrier(60s);
      // Two subsets at once, and one of a single worker.
      const std::vector<std::string> half = rank % 2 == 0
                                                ? std::vector<std::string>{"worker2", "worker0"}
                                                : std::vector<std::string>{"worker1", "worker3"};
      self.barrier(half, 60s);
      self.barrier({self.name()}, 60s);
      const auto all = gather(self, "bytes of " + self.name());
      EXPECT_EQ(all.size(), 4u);
      for (const auto& [name, bytes] : all) EXPECT_EQ(bytes, "bytes of " + name);
      const auto some = gather(self, std::string("\0x", 2), half);
      EXPECT_EQ(some.size(), 2u);
      EXPECT_TRUE(some.count(self.name()));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Shutdown, BarriersFromSeveralThreads) {
  start_all(2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) threads.emplace_back([&, i] { worker(i % 2).barrier(60s); });
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Shutdown, BarrierTimesOutWithTheNamesThatAreMissing) {
  start_all(3);
  std::thread follower([&] {
    const RpcError error = error_of([&] { worker(1).barrier(3s); });
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  });
  const RpcError error = error_of([&] { worker(0).barrier(3s); });
  follower.join();
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(error.message(), HasSubstr("'worker2'"));
  EXPECT_THAT(error.message(), HasSubstr("had not come after 3s"));
}

TEST_P(Shutdown, BarrierInAMethodHasTheTimeOfTheCall) {
  start_all(2);
  integration::meetings_missed = 0;
  const RpcError error =
      error_of([&] { worker(0).peer(1).within(200ms).call<&integration::meet>(); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(eventually([] { return integration::meetings_missed == 1; }));
}

TEST_P(Shutdown, BarrierFailsWhenAMemberIsLost) {
  start_all(3);
  const auto fail_at = [&](int rank) {
    // By their names: without worker2 the two would be a set of their own.
    const RpcError error = error_of([&] {
      worker(rank).barrier({"worker0", "worker1", "worker2"}, 60s);
    });
    // It may be off the list before this thread has begun.
    EXPECT_THAT(error.code(), AnyOf(ErrorCode::kUnavailable, ErrorCode::kNotFound));
    EXPECT_THAT(error.message(), HasSubstr("worker2"));
  };
  std::thread follower(fail_at, 1);
  std::thread leader(fail_at, 0);
  worker(2).shutdown(hard());
  leader.join();
  follower.join();
}

// A callback of a timer, or of a question, may keep the worker a moment longer than its handles.
TEST(LastHandle, MayGoOnTheThreadOfTimers) {
  sinew::WorkerOptions options;
  options.name = "alone";
  options.init_method = "inproc://alone";
  options.network = std::make_shared<sinew::internal::InprocNetwork>();
  Worker worker = sinew::init_rpc(options);
  auto core = sinew::WorkerAccess::core(worker);
  const std::weak_ptr<sinew::internal::WorkerCore> watched = core;
  sinew::internal::Timers& timers = core->timers();
  const auto now = core->clock().now();
  std::promise<void> is_last;
  worker = Worker();
  timers.run_at(now, [core = std::move(core), last = is_last.get_future().share()]() mutable {
    last.wait();
    core.reset();
  });
  is_last.set_value();
  EXPECT_TRUE(eventually([&] { return watched.expired(); }));
}

}  // namespace
