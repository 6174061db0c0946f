// Time limits and cancellation of calls.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "sinew/tests/support/cluster.h"

namespace timeouts {

using std::chrono::nanoseconds;
using TimePoint = sinew::internal::Clock::TimePoint;

sinew::testing::Gate gate;
std::atomic<int> ran{0};

int quick() { return 1; }
int blocked() {
  gate.pass();
  return ++ran;
}

/// What is left of the time of the call that is being served; the largest number for "no limit".
std::int64_t time_left() {
  const TimePoint deadline = sinew::CallContext::current().deadline();
  if (deadline == TimePoint::max()) return std::numeric_limits<std::int64_t>::max();
  return nanoseconds(deadline - std::chrono::steady_clock::now()).count();
}
std::int64_t time_left_at_next(int hops, bool no_timeout);
sinew::Future<std::int64_t> time_left_in_continuation();

/// Ends when its caller has given it up, and says whether that came.
std::atomic<int> cancellations{0};
void wait_for_cancellation() {
  auto cancelled = std::make_shared<absl::Notification>();
  sinew::CallContext::current().cancellation().notify([cancelled] { cancelled->Notify(); });
  gate.pass();  // Open: only counts.
  if (cancelled->WaitForNotificationWithTimeout(absl::Seconds(30))) ++cancellations;
}
void wait_for_cancellation_at_next(int hops);
/// A wait of its own that nothing ends.
void wait_for_ever() {
  gate.pass();
  sinew::Promise<void> promise;
  promise.future().wait();
}

class Slow {
 public:
  explicit Slow(bool wait) {
    if (wait) gate.pass();
  }
  int quick() { return 2; }
  int blocked() { return timeouts::blocked(); }
};

}  // namespace timeouts

SINEW_METHOD(timeouts::quick, timeouts::blocked, timeouts::time_left, timeouts::time_left_at_next,
             timeouts::time_left_in_continuation, timeouts::wait_for_cancellation,
             timeouts::wait_for_cancellation_at_next, timeouts::wait_for_ever);
SINEW_SERVICE(timeouts::Slow, (bool));
SINEW_METHOD(timeouts::Slow::quick, timeouts::Slow::blocked);

namespace timeouts {

sinew::Peer next_peer() {
  const sinew::Worker worker = sinew::current_worker();
  return worker.peer((worker.rank() + 1) % static_cast<int>(worker.workers().size()));
}

std::int64_t time_left_at_next(int hops, bool no_timeout) {
  if (hops == 0) return time_left();
  sinew::CallOptions options;
  if (no_timeout) options.timeout = sinew::kNoTimeout;
  return next_peer().with(options).call<&time_left_at_next>(hops - 1, no_timeout);
}

sinew::Future<std::int64_t> time_left_in_continuation() {
  const sinew::Peer next = next_peer();
  return next.async<&quick>().then([next](int) { return next.async<&time_left>(); });
}

void wait_for_cancellation_at_next(int hops) {
  if (hops == 0) return wait_for_cancellation();
  try {
    next_peer().call<&wait_for_cancellation_at_next>(hops - 1);
  } catch (const sinew::RpcError& error) {
    if (sinew::CallContext::current().cancellation().is_cancelled()) ++cancellations;
    throw;
  }
}

}  // namespace timeouts

namespace sinew {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::eventually;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr std::chrono::nanoseconds kShort = 30ms;

MethodTable timeouts_table() {
  MethodTable methods;
  methods.add<&timeouts::quick>()
      .add<&timeouts::blocked>()
      .add<&timeouts::time_left>()
      .add<&timeouts::time_left_at_next>()
      .add<&timeouts::time_left_in_continuation>()
      .add<&timeouts::wait_for_cancellation>()
      .add<&timeouts::wait_for_cancellation_at_next>()
      .add<&timeouts::wait_for_ever>()
      .serve<timeouts::Slow>()
      .add<&timeouts::Slow::quick>()
      .add<&timeouts::Slow::blocked>();
  return methods;
}

CallOptions cancelled_by(const CancellationSource& source) {
  CallOptions options;
  options.cancellation = source.token();
  return options;
}

class TimeoutsTest : public testing::ClusterTest {
 protected:
  void SetUp() override {
    timeouts::gate.close();
    timeouts::ran = 0;
    timeouts::cancellations = 0;
    start(3, timeouts_table());
  }
  void TearDown() override {
    timeouts::gate.open();
    ClusterTest::TearDown();
  }
  Peer callee() const { return worker(0).peer(1); }
};
SINEW_INSTANTIATE_CLUSTER_TEST(TimeoutsTest);

// ---- The default.

TEST_P(TimeoutsTest, DefaultIsWhatTheOptionSays) {
  EXPECT_EQ(worker(0).default_timeout(), 60s);
  start(2, timeouts_table(), [](int, WorkerOptions& options) { options.default_timeout = 5500ms; });
  EXPECT_EQ(worker(0).default_timeout(), 5500ms);
  EXPECT_LE(callee().call<&timeouts::time_left>(), std::chrono::nanoseconds(5500ms).count());
  worker(0).set_default_timeout(7s);
  EXPECT_EQ(worker(0).default_timeout(), 7s);
  EXPECT_EQ(worker(1).default_timeout(), 5500ms);
  EXPECT_LE(callee().call<&timeouts::time_left>(), std::chrono::nanoseconds(7s).count());
}

TEST_P(TimeoutsTest, DefaultAppliesToCallsThatSetNone) {
  worker(0).set_default_timeout(kShort);
  RpcError error = error_of([&] { callee().call<&timeouts::blocked>(); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  error = error_of([&] { callee().async<&timeouts::blocked>().wait(); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
}

TEST_P(TimeoutsTest, ChangingTheDefaultLeavesCallsInFlightAlone) {
  const Future<int> early = callee().async<&timeouts::blocked>();
  worker(0).set_default_timeout(kShort);
  const RpcError error = error_of([&] { callee().call<&timeouts::blocked>(); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_FALSE(early.done());
  timeouts::gate.open();
  EXPECT_GT(early.wait(), 0);
}

TEST_P(TimeoutsTest, DefaultMustBePositive) {
  EXPECT_EQ(error_of([&] { worker(0).set_default_timeout(0s); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { worker(0).set_default_timeout(-1s); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(worker(0).default_timeout(), 60s);
  worker(0).set_default_timeout(kNoTimeout);
  EXPECT_EQ(callee().call<&timeouts::time_left>(), std::numeric_limits<std::int64_t>::max());
}

// ---- One call.

TEST_P(TimeoutsTest, ErrorSaysWhoWhatAndHowLong) {
  const RpcError error = error_of([&] { callee().within(kShort).call<&timeouts::blocked>(); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(error.peer(), "worker1");
  EXPECT_EQ(error.method(), "timeouts::blocked");
  EXPECT_EQ(error.execution(), Execution::kMayHaveRun);
  EXPECT_THAT(error.message(), MatchesRegex("worker 'worker1' did not answer within [0-9.]+ s"));
}

TEST_P(TimeoutsTest, NeverMeansNever) {
  EXPECT_EQ(callee().within(kNoTimeout).call<&timeouts::time_left>(),
            std::numeric_limits<std::int64_t>::max());
  worker(0).set_default_timeout(kShort);
  const Future<int> patient = callee().within(kNoTimeout).async<&timeouts::blocked>();
  error_of([&] { callee().call<&timeouts::blocked>(); });
  EXPECT_FALSE(patient.done());
  timeouts::gate.open();
  EXPECT_GT(patient.wait(), 0);
}

TEST_P(TimeoutsTest, ZeroAndNegativeAreRefused) {
  for (const std::chrono::nanoseconds bad : {0ns, -1ns, std::chrono::nanoseconds(-5s)}) {
    const RpcError error = error_of([&] { callee().within(bad).async<&timeouts::quick>(); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.message(), "a call's timeout must be positive, or kNoTimeout; this one is " +
                                   std::to_string(bad.count()) + " ns");
    EXPECT_EQ(error.execution(), Execution::kDidNotRun);
    EXPECT_EQ(error_of([&] { callee().within(bad).remote<&timeouts::quick>(); }).code(),
              ErrorCode::kInvalidArgument);
  }
}

TEST_P(TimeoutsTest, LessThanAMicrosecondIsAMicrosecondAndNotForEver) {
  for (const std::chrono::nanoseconds tiny : {1ns, 999ns, 1500ns}) {
    const RpcError error = error_of([&] { callee().within(tiny).call<&timeouts::blocked>(); });
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  }
}

TEST_P(TimeoutsTest, VeryLongTimeoutsDoNotOverflow) {
  for (const std::chrono::nanoseconds vast :
       {std::chrono::nanoseconds(24h * 25), std::chrono::nanoseconds(24h * 365 * 100),
        kNoTimeout - std::chrono::nanoseconds(1)}) {
    EXPECT_EQ(callee().within(vast).call<&timeouts::quick>(), 1);
    EXPECT_GT(callee().within(vast).call<&timeouts::time_left>(),
              std::chrono::nanoseconds(24h * 24).count());
  }
}

TEST_P(TimeoutsTest, LateReplyIsDropped) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(error_of([&] { callee().within(kShort).call<&timeouts::blocked>(); }).code(),
              ErrorCode::kDeadlineExceeded);
  }
  EXPECT_TRUE(eventually([&] { return worker(0).counters().at("rpc.client_active_calls") == 0; }));
  timeouts::gate.open();
  EXPECT_TRUE(eventually([&] { return worker(1).counters().at("rpc.server_active_calls") == 0; }));
  EXPECT_EQ(callee().call<&timeouts::quick>(), 1);
}

TEST_P(TimeoutsTest, CallWhoseTimeHasPassedBeforeItStartedIsNotRun) {
  start(2, timeouts_table(), [](int, WorkerOptions& options) { options.num_threads = 1; });
  const Future<int> first = callee().async<&timeouts::blocked>();
  ASSERT_TRUE(timeouts::gate.wait_for_arrivals(1));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(error_of([&] { callee().within(kShort).call<&timeouts::blocked>(); }).code(),
              ErrorCode::kDeadlineExceeded);
  }
  // Their time counts from their arrival: when all have arrived, as much again is certainly enough.
  EXPECT_TRUE(eventually([&] { return worker(1).counters().at("rpc.server_active_calls") == 6; }));
  EXPECT_EQ(error_of([&] { callee().within(kShort).call<&timeouts::quick>(); }).code(),
            ErrorCode::kDeadlineExceeded);
  timeouts::gate.open();
  EXPECT_EQ(first.wait(), 1);
  EXPECT_TRUE(eventually([&] { return worker(1).counters().at("rpc.server_active_calls") == 0; }));
  EXPECT_EQ(timeouts::ran, 1);
}

// ---- Nested calls.

TEST_P(TimeoutsTest, DeadlineBindsNestedCalls) {
  const std::int64_t limit = std::chrono::nanoseconds(20s).count();
  for (const bool no_timeout : {false, true}) {
    const std::int64_t left =
        callee().within(20s).call<&timeouts::time_left_at_next>(4, no_timeout);
    EXPECT_GT(left, 0);
    EXPECT_LE(left, limit);
  }
  const std::int64_t left =
      callee().within(kNoTimeout).call<&timeouts::time_left_at_next>(1, false);
  EXPECT_LE(left, std::chrono::nanoseconds(60s).count())
      << "the default of the worker in the middle";
  EXPECT_EQ(callee().within(kNoTimeout).call<&timeouts::time_left_at_next>(3, true),
            std::numeric_limits<std::int64_t>::max());
}

TEST_P(TimeoutsTest, DeadlineBindsCallsOfContinuations) {
  EXPECT_LE(callee().within(20s).call<&timeouts::time_left_in_continuation>(),
            std::chrono::nanoseconds(20s).count());
}

TEST_P(TimeoutsTest, DeadlineEndsWaitsOfTheHandler) {
  timeouts::gate.open();
  const RpcError error =
      error_of([&] { callee().within(kShort).call<&timeouts::wait_for_ever>(); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(eventually([&] { return worker(1).counters().at("rpc.server_active_calls") == 0; }));
}

// ---- References.

TEST_P(TimeoutsTest, RemoteThatTimesOutFailsItsReference) {
  {
    const auto slow = callee().within(kShort).remote<&timeouts::blocked>();
    EXPECT_EQ(error_of([&] { slow.created().wait(); }).code(), ErrorCode::kDeadlineExceeded);
    EXPECT_EQ(error_of([&] { slow.to_here(); }).code(), ErrorCode::kDeadlineExceeded);
    timeouts::gate.open();
    EXPECT_TRUE(
        eventually([&] { return worker(1).counters().at("rpc.server_active_calls") == 0; }));
    EXPECT_EQ(error_of([&] { slow.to_here(); }).code(), ErrorCode::kDeadlineExceeded) << "for ever";
  }
  EXPECT_TRUE(eventually([&] { return worker(1).counters().at("rref.owned") == 0; }));
}

TEST_P(TimeoutsTest, ToHereHasATimeoutOfItsOwn) {
  const auto slow = callee().remote<&timeouts::blocked>();
  EXPECT_EQ(error_of([&] { slow.within(kShort).to_here(); }).code(), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(error_of([&] { slow.within(0s).to_here(); }).code(), ErrorCode::kInvalidArgument);
  timeouts::gate.open();
  EXPECT_EQ(slow.to_here(), 1);
}

TEST_P(TimeoutsTest, OwnersWaitsHaveATimeoutToo) {
  const auto own = worker(0).self().remote<&timeouts::blocked>();
  EXPECT_EQ(error_of([&] { own.within(kShort).to_here(); }).code(), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(error_of([&] { own.within(kShort).local_value(); }).code(),
            ErrorCode::kDeadlineExceeded);
  timeouts::gate.open();
  EXPECT_EQ(own.to_here(), 1);
}

TEST_P(TimeoutsTest, MemberCallsTimeOutOnSlowMethodsAndOnSlowCreation) {
  const auto made = callee().remote<timeouts::Slow>(false);
  EXPECT_EQ(made.call<&timeouts::Slow::quick>(), 2);
  EXPECT_EQ(error_of([&] { made.within(kShort).call<&timeouts::Slow::blocked>(); }).code(),
            ErrorCode::kDeadlineExceeded);
  const auto in_the_making = callee().remote<timeouts::Slow>(true);
  EXPECT_EQ(error_of([&] { in_the_making.within(kShort).call<&timeouts::Slow::quick>(); }).code(),
            ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(
      error_of([&] { in_the_making.within(kShort).async<&timeouts::Slow::quick>().wait(); }).code(),
      ErrorCode::kDeadlineExceeded);
  const auto kept = in_the_making.within(kShort).remote<&timeouts::Slow::quick>();
  EXPECT_EQ(error_of([&] { kept.created().wait(); }).code(), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(error_of([&] { kept.to_here(); }).code(), ErrorCode::kDeadlineExceeded);
  timeouts::gate.open();
  EXPECT_EQ(in_the_making.call<&timeouts::Slow::quick>(), 2);
}

// ---- Cancellation.

TEST_P(TimeoutsTest, CancellationReachesTheCallee) {
  timeouts::gate.open();
  const CancellationSource source;
  const Future<void> future =
      callee().with(cancelled_by(source)).async<&timeouts::wait_for_cancellation>();
  ASSERT_TRUE(timeouts::gate.wait_for_arrivals(1));
  EXPECT_FALSE(future.done());
  source.cancel();
  source.cancel();
  const RpcError error = error_of([&] { future.wait(); });
  EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  EXPECT_EQ(error.peer(), "worker1");
  EXPECT_EQ(error.method(), "timeouts::wait_for_cancellation");
  EXPECT_EQ(error.execution(), Execution::kMayHaveRun);
  EXPECT_TRUE(eventually([] { return timeouts::cancellations == 1; }));
}

TEST_P(TimeoutsTest, CancellationReachesNestedCallees) {
  timeouts::gate.open();
  const CancellationSource source;
  const Future<void> future =
      callee().with(cancelled_by(source)).async<&timeouts::wait_for_cancellation_at_next>(3);
  ASSERT_TRUE(timeouts::gate.wait_for_arrivals(1));
  source.cancel();
  EXPECT_EQ(error_of([&] { future.wait(); }).code(), ErrorCode::kCancelled);
  EXPECT_TRUE(eventually([] { return timeouts::cancellations == 4; }));
}

TEST_P(TimeoutsTest, TimeoutReachesTheCalleeAsCancellation) {
  timeouts::gate.open();
  EXPECT_EQ(error_of([&] { callee().within(3s).call<&timeouts::wait_for_cancellation>(); }).code(),
            ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(eventually([] { return timeouts::cancellations == 1; }));
}

TEST_P(TimeoutsTest, CancelledBeforeTheCall) {
  const CancellationSource source;
  source.cancel();
  const RpcError error =
      error_of([&] { callee().with(cancelled_by(source)).call<&timeouts::blocked>(); });
  EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  EXPECT_EQ(error.execution(), Execution::kDidNotRun);
  EXPECT_EQ(error_of([&] {
              callee().with(cancelled_by(source)).remote<&timeouts::blocked>().to_here();
            }).code(),
            ErrorCode::kCancelled);
  EXPECT_EQ(timeouts::ran, 0);
}

TEST_P(TimeoutsTest, CancelledAfterTheCall) {
  const CancellationSource source;
  const Future<int> future = callee().with(cancelled_by(source)).async<&timeouts::quick>();
  EXPECT_EQ(future.wait(), 1);
  source.cancel();
  EXPECT_EQ(future.wait(), 1);
}

TEST_P(TimeoutsTest, OneSourceCancelsManyCallsAndNoOthers) {
  const CancellationSource source;
  std::vector<Future<int>> cancelled;
  for (int i = 0; i < 100; ++i) {
    cancelled.push_back(
        worker(0).peer(1 + i % 2).with(cancelled_by(source)).async<&timeouts::blocked>());
  }
  const Future<int> other = callee().async<&timeouts::blocked>();
  source.cancel();
  for (const Future<int>& future : cancelled) {
    EXPECT_EQ(error_of([&] { future.wait(); }).code(), ErrorCode::kCancelled);
  }
  EXPECT_FALSE(other.done());
  timeouts::gate.open();
  EXPECT_GT(other.wait(), 0);
}

}  // namespace
}  // namespace sinew
