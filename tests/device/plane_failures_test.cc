#include <gtest/gtest.h>

#include <utility>

#include "plane_network.h"
#include "sinew/tests/support/eventual_value.h"

namespace sinew::testing {
namespace {

using Call = FakeGpus::Call;
using Fault = FakeGpus::Fault;
using TransferPtr = std::shared_ptr<TestTransfer>;
using std::chrono::milliseconds;

// Short where a deadline is to pass; what is to succeed has the defaults.
NetworkOptions impatient() {
  NetworkOptions options;
  options.plane.connect_timeout = milliseconds(200);
  options.plane.transfer_timeout = milliseconds(600);
  options.plane.ready_timeout = milliseconds(600);
  options.plane.abort_timeout = milliseconds(200);
  options.plane.first_retry_delay = milliseconds(20);
  options.plane.max_retry_delay = milliseconds(100);
  return options;
}

NetworkOptions patient() {
  NetworkOptions options;
  options.plane.first_retry_delay = milliseconds(20);
  options.plane.max_retry_delay = milliseconds(100);
  return options;
}

void expect_unavailable(const TestTransfer& transfer) {
  EXPECT_EQ(transfer.sent->wait().code(), absl::StatusCode::kUnavailable) << transfer.sent->wait();
  EXPECT_EQ(transfer.received->wait().code(), absl::StatusCode::kUnavailable)
      << transfer.received->wait();
}

// Failures heal: sooner or later both ends move bytes again.
void expect_recovery(PlaneNetwork& network, int from, int to) {
  const bool moved = eventually([&] {
    const auto usable = [&](int one, int other) {
      return network.plane(one).is_usable(network.info(other));
    };
    if (!usable(from, to) || !usable(to, from)) return false;
    const TransferPtr transfer = network.run(from, to, {1000, 7});
    return transfer->sent->wait().ok() && transfer->received->wait().ok() && transfer->is_moved();
  });
  EXPECT_TRUE(moved);
}

// (sender, receiver, whose call fails)
struct Roles {
  int from;
  int to;
  int victim;
};

class PlaneFailures : public ::testing::TestWithParam<Roles> {
 protected:
  int from() const { return GetParam().from; }
  int to() const { return GetParam().to; }
  std::string victim() const { return "w" + std::to_string(GetParam().victim); }
  Call victims_part() const { return GetParam().victim == from() ? Call::kSend : Call::kRecv; }

  void expect_healed_failure(NetworkOptions options, Call call, Fault fault) {
    PlaneNetwork network(std::move(options));
    network.gpus().inject(victim(), call, fault);
    expect_unavailable(*network.begin(from(), to()));
    EXPECT_FALSE(network.logs().empty());
    EXPECT_GE(network.plane(from()).counters().failures, 1);
    EXPECT_GE(network.plane(to()).counters().failures, 1);
    expect_recovery(network, from(), to());
  }
};

INSTANTIATE_TEST_SUITE_P(Roles, PlaneFailures,
                         ::testing::Values(Roles{0, 1, 0}, Roles{0, 1, 1}, Roles{1, 0, 0},
                                           Roles{1, 0, 1}),
                         [](const auto& roles) {
                           const Roles& r = roles.param;
                           return std::string(r.from == 0 ? "SenderLeads" : "ReceiverLeads") +
                                  (r.victim == r.from ? "SenderFails" : "ReceiverFails");
                         });

TEST_P(PlaneFailures, NoCommunicator) {
  expect_healed_failure(patient(), Call::kInitRank, Fault::kFail);
}

TEST_P(PlaneFailures, NoStream) {
  PlaneNetwork network(patient());
  network.gpus().inject(victim(), Call::kCreateStream, Fault::kFail);
  expect_unavailable(*network.begin(from(), to()));
  expect_recovery(network, from(), to());
}

TEST_P(PlaneFailures, CommunicatorThatNeverAnswers) {
  expect_healed_failure(impatient(), Call::kInitRank, Fault::kNeverEnds);
}

TEST_P(PlaneFailures, SendOrReceiveFails) {
  expect_healed_failure(patient(), victims_part(), Fault::kFail);
}

TEST_P(PlaneFailures, GroupFails) {
  expect_healed_failure(patient(), Call::kGroupEnd, Fault::kFail);
}

TEST_P(PlaneFailures, LaunchThatNeverEnds) {
  expect_healed_failure(impatient(), Call::kGroupEnd, Fault::kNeverEnds);
}

TEST_P(PlaneFailures, KernelThatNeverEnds) {
  expect_healed_failure(impatient(), victims_part(), Fault::kNeverEnds);
}

TEST_P(PlaneFailures, ErrorsThatComeUpLater) {
  PlaneNetwork network(patient());
  expect_moved(*network.run(from(), to(), {10}));
  network.gpus().hold_kernels();
  const TransferPtr transfer = network.begin(from(), to());
  ASSERT_TRUE(eventually([&] { return network.gpus().calls(Call::kGroupEnd) == 4; }));
  network.gpus().fail_communicators(victim());
  network.gpus().let_kernels_go();
  const absl::Status sent = transfer->sent->wait();
  const absl::Status received = transfer->received->wait();
  // The transfer may have been quicker than the look at the communicator, at either end.
  for (const absl::Status& status : {sent, received}) {
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  }
  if (received.ok()) {
    EXPECT_TRUE(transfer->is_moved());
  }
}

TEST_P(PlaneFailures, ErrorsEndWhatIsUnderWay) {
  PlaneNetwork network(patient());
  // Launched at both ends, and stuck there.
  network.gpus().inject("w0", GetParam().from == 0 ? Call::kSend : Call::kRecv, Fault::kNeverEnds);
  const TransferPtr stuck = network.begin(from(), to());
  ASSERT_TRUE(eventually([&] { return network.gpus().calls(Call::kGroupEnd) == 2; }));
  const TransferPtr behind = network.begin(to(), from());
  network.gpus().fail_communicators(victim());
  expect_unavailable(*stuck);
  expect_unavailable(*behind);
  EXPECT_FALSE(network.logs().empty());
  expect_recovery(network, from(), to());
  EXPECT_GE(network.plane(0).counters().aborts, 1);
  EXPECT_GE(network.plane(1).counters().aborts, 1);
}

TEST_P(PlaneFailures, PeerKilledInTheMiddle) {
  PlaneNetwork network(impatient());
  network.gpus().inject(victim(), victims_part(), Fault::kNeverEnds);
  const TransferPtr running = network.begin(from(), to());
  ASSERT_TRUE(eventually([&] { return network.gpus().calls(Call::kGroupEnd) == 2; }));
  network.cut(GetParam().victim);
  network.gpus().kill(victim());
  const TransferPtr waiting = network.begin(from(), to());
  // Nobody tells them; the deadline does.
  EXPECT_FALSE(running->sent->wait().ok());
  EXPECT_FALSE(running->received->wait().ok());
  EXPECT_FALSE(waiting->sent->wait().ok());
  EXPECT_FALSE(waiting->received->wait().ok());
}

TEST_P(PlaneFailures, LostPeersEndAtOnce) {
  PlaneNetwork network({});  // with deadlines that the test does not wait for
  network.gpus().inject(victim(), victims_part(), Fault::kNeverEnds);
  const TransferPtr running = network.begin(from(), to());
  ASSERT_TRUE(eventually([&] { return network.gpus().calls(Call::kGroupEnd) == 2; }));
  const TransferPtr waiting = network.make({5});
  network.offer(from(), to(), waiting);
  network.drain();
  network.plane(from()).on_peer_lost(network.info(to()));
  network.plane(to()).on_peer_lost(network.info(from()));
  expect_unavailable(*running);
  EXPECT_EQ(waiting->sent->wait().code(), absl::StatusCode::kUnavailable);
  // For ever.
  EXPECT_FALSE(network.plane(from()).is_usable(network.info(to())));
  const TransferPtr late = network.make({5});
  network.offer(from(), to(), late);
  network.accept(from(), to(), late);
  expect_unavailable(*late);
}

TEST_P(PlaneFailures, AbortThatHangs) {
  NetworkOptions options = impatient();
  // The kernel is to run by then.
  options.plane.connect_timeout = options.plane.transfer_timeout = std::chrono::seconds(2);
  PlaneNetwork network(options);
  network.gpus().inject(victim(), Call::kAbort, Fault::kHang);
  network.gpus().inject(victim(), victims_part(), Fault::kNeverEnds);
  TransferPtr transfer = network.begin(from(), to());
  const std::weak_ptr<int> sender_owner = transfer->sender_owner;
  const std::weak_ptr<int> receiver_owner = transfer->receiver_owner;
  const bool sender_hangs = GetParam().victim == from();
  EXPECT_EQ(transfer->sent->wait().code(), absl::StatusCode::kUnavailable);
  // The device may still write: the road above must not bring the same bytes otherwise.
  EXPECT_EQ(transfer->received->wait().code(),
            sender_hangs ? absl::StatusCode::kUnavailable : absl::StatusCode::kDataLoss);
  transfer->sender_owner = nullptr;
  transfer->receiver_owner = nullptr;
  // The device may still touch the memory of the end that hangs; the other one's is free.
  const auto& hanging = sender_hangs ? sender_owner : receiver_owner;
  const auto& other = sender_hangs ? receiver_owner : sender_owner;
  EXPECT_TRUE(eventually([&] { return other.expired(); }));
  EXPECT_FALSE(hanging.expired());
  EXPECT_EQ(network.plane(GetParam().victim).counters().threads_left_behind, 1);
  network.gpus().release();
  EXPECT_TRUE(eventually([&] { return hanging.expired(); }));
  expect_recovery(network, from(), to());
  EXPECT_EVENTUALLY(network.plane(GetParam().victim).counters().threads_left_behind, 0);
}

TEST_P(PlaneFailures, CallsThatHang) {
  for (const Call call : {Call::kInitRank, victims_part(), Call::kGroupEnd}) {
    SCOPED_TRACE(static_cast<int>(call));
    PlaneNetwork network(impatient());
    network.expect_leftovers();
    network.gpus().inject(victim(), call, Fault::kHang);
    expect_unavailable(*network.begin(from(), to()));
    // Another thread has taken the launcher's place.
    expect_recovery(network, from(), to());
    EXPECT_GE(network.plane(GetParam().victim).counters().threads_left_behind, 1);
    network.gpus().release();
    EXPECT_TRUE(eventually([&] { return network.gpus().hanging() == 0; }));
    expect_recovery(network, from(), to());
  }
}

TEST_P(PlaneFailures, StopEndsWhatIsUnderWay) {
  PlaneNetwork network(patient());
  network.gpus().inject(victim(), victims_part(), Fault::kNeverEnds);
  const TransferPtr running = network.begin(from(), to());
  ASSERT_TRUE(eventually([&] { return network.gpus().calls(Call::kGroupEnd) == 2; }));
  const TransferPtr behind = network.begin(from(), to());
  const TransferPtr offered = network.make({5});
  network.offer(from(), to(), offered);
  network.plane(from()).stop();
  for (const auto& transfer : {running, behind, offered}) {
    EXPECT_TRUE(transfer->sent->is_set());
    EXPECT_EQ(transfer->sent->wait().code(), absl::StatusCode::kCancelled);
  }
  // The other end is told.
  EXPECT_FALSE(running->received->wait().ok());
  EXPECT_FALSE(behind->received->wait().ok());
  EXPECT_TRUE(eventually([&] { return !network.plane(to()).is_usable(network.info(from())); }));
  network.plane(from()).stop();
  EXPECT_FALSE(network.plane(from()).is_usable(network.info(to())));
}

TEST_P(PlaneFailures, NothingRunsAfterStop) {
  PlaneNetwork network({});
  network.plane(from()).stop();
  network.plane(to()).stop();
  TransferPtr transfer = network.begin(from(), to());
  const std::weak_ptr<int> owner = transfer->sender_owner;
  EXPECT_FALSE(transfer->sent->is_set());
  EXPECT_FALSE(transfer->received->is_set());
  // Nor is anything kept.
  transfer = nullptr;
  EXPECT_TRUE(owner.expired());
}

TEST_P(PlaneFailures, StopWhileACallHangs) {
  PlaneNetwork network(impatient());
  network.expect_leftovers();
  network.gpus().inject(victim(), Call::kInitRank, Fault::kHang);
  const TransferPtr transfer = network.begin(from(), to());
  ASSERT_TRUE(eventually([&] { return network.gpus().hanging() == 1; }));
  network.plane(GetParam().victim).stop();
  const auto& own = GetParam().victim == from() ? transfer->sent : transfer->received;
  EXPECT_TRUE(own->is_set());
  EXPECT_EQ(network.plane(GetParam().victim).counters().threads_left_behind, 1);
}

TEST(PlaneBackOff, AFailedPlaneIsNotUsableForAWhile) {
  NetworkOptions options;
  options.plane.first_retry_delay = std::chrono::hours(1);
  options.plane.max_retry_delay = std::chrono::hours(1);
  PlaneNetwork network(options);
  network.gpus().inject("w1", Call::kInitRank, Fault::kFail);
  expect_unavailable(*network.begin(0, 1));
  network.drain();
  for (const auto& [from, to] : {std::pair(0, 1), {1, 0}}) {
    EXPECT_FALSE(network.plane(from).is_usable(network.info(to)));
    const TransferPtr transfer = network.begin(from, to);
    EXPECT_EQ(transfer->sent->wait().code(), absl::StatusCode::kUnavailable);
    EXPECT_FALSE(transfer->received->wait().ok());
  }
  EXPECT_EQ(network.gpus().calls(Call::kInitRank), 2);
}

TEST(PlaneBackOff, OtherPeersAreNotConcerned) {
  NetworkOptions options;
  options.workers = 3;
  options.plane.first_retry_delay = std::chrono::hours(1);
  PlaneNetwork network(options);
  network.gpus().inject("w1", Call::kInitRank, Fault::kFail);
  expect_unavailable(*network.begin(0, 1));
  expect_moved(*network.run(0, 2, {100}));
  expect_moved(*network.run(2, 0, {100}));
}

TEST(PlaneBackOff, NoIdForACommunicator) {
  for (const Fault fault : {Fault::kFail, Fault::kHang}) {
    PlaneNetwork network(impatient());
    if (fault == Fault::kHang) network.expect_leftovers();
    network.gpus().inject("w0", Call::kGetUniqueId, fault);
    expect_unavailable(*network.begin(1, 0));
    expect_recovery(network, 1, 0);
  }
}

TEST(PlaneBackOff, OtherVersionsOfNcclAreNotTried) {
  NetworkOptions options = patient();
  options.last_version = 23003;
  PlaneNetwork network(options);
  expect_unavailable(*network.begin(0, 1));
  network.drain();
  EXPECT_FALSE(network.plane(0).is_usable(network.info(1)));
  EXPECT_FALSE(network.plane(1).is_usable(network.info(0)));
  ASSERT_FALSE(network.logs().empty());
  EXPECT_NE(network.logs().front().find("23003"), std::string::npos) << network.logs().front();
}

// The peer's word that it will not accept comes in the middle of everything, over and over.
TEST(PlaneBackOff, FailuresUnderTrafficLeaveNothingBehind) {
  NetworkOptions options = impatient();
  options.workers = 3;
  options.plane.transfer_timeout = std::chrono::seconds(2);
  PlaneNetwork network(options);
  std::vector<TransferPtr> transfers;
  for (int round = 0; round < 10; ++round) {
    const std::string name = "w" + std::to_string(round % 3);
    const Call call = std::vector<Call>{Call::kInitRank, Call::kSend, Call::kGroupEnd}[round % 3];
    network.gpus().inject(name, call, round % 2 == 0 ? Fault::kFail : Fault::kNeverEnds, 3);
    for (int from = 0; from < 3; ++from) {
      for (const int to : {(from + 1) % 3, (from + 2) % 3}) {
        transfers.push_back(network.begin(from, to));
        if (transfers.size() % 5 == 0) {
          network.plane(from).withdraw(network.info(to), transfers.back()->ticket);
        }
      }
    }
    if (round % 4 == 3) (void)transfers.back()->sent->wait();
  }
  for (const TransferPtr& transfer : transfers) {
    const absl::Status sent = transfer->sent->wait();
    const absl::Status received = transfer->received->wait();
    EXPECT_NE(sent.code(), absl::StatusCode::kUnknown);
    EXPECT_NE(received.code(), absl::StatusCode::kUnknown);
    if (received.ok()) {
      EXPECT_TRUE(transfer->is_moved());
    }
  }
  for (int from = 0; from < 3; ++from) expect_recovery(network, from, (from + 1) % 3);
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_EQ(network.plane(worker).counters().protocol_errors, 0);
  }
}

}  // namespace
}  // namespace sinew::testing
