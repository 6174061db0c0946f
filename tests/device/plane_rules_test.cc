// Rules of NCCL's own that a plane keeps: each test fails with a plane that does not know its rule.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "plane_network.h"
#include "sinew/rpc/planes/nccl/environment.h"
#include "sinew/testing/eventually.h"

namespace sinew::testing {
namespace {

using Call = FakeGpus::Call;
using Fault = FakeGpus::Fault;
using TransferPtr = std::shared_ptr<TestTransfer>;
using std::chrono::milliseconds;

// ---- Versions.

// Several communicators of one thread at once, as NCCL has allowed since 2.27 only.
TEST(NcclRules, OlderVersionsAreNotUsed) {
  NetworkOptions options;
  options.workers = 3;
  options.version = options.last_version = 22203;
  PlaneNetwork network(options);
  EXPECT_FALSE(network.plane(0).is_usable(network.info(1)));
  for (const auto& transfer : {network.begin(0, 1), network.begin(0, 2)}) {
    EXPECT_EQ(transfer->sent->wait().code(), absl::StatusCode::kUnavailable);
    EXPECT_FALSE(transfer->received->wait().ok());
  }
  EXPECT_EQ(network.gpus().calls(Call::kInitRank), 0);
  ASSERT_FALSE(network.logs().empty());
  EXPECT_NE(network.logs().front().find("22203"), std::string::npos);
}

TEST(NcclRules, TheEnvironmentSaysWhetherThePlaneMayBeUsed) {
  std::map<std::string, std::string> variables;
  const auto variable = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  const auto problem = [&](int version) {
    return std::string(internal::check_nccl_environment(version, variable).message());
  };
  EXPECT_EQ(problem(22700), "");
  EXPECT_EQ(problem(23007), "");
  EXPECT_NE(problem(22606).find("this process has 2.26.6"), std::string::npos) << problem(22606);
  EXPECT_NE(problem(2708).find("this process has 2.7.8"), std::string::npos) << problem(2708);
  for (const char* name : {"NCCL_COMM_ID", "NCCL_COMM_BLOCKING", "NCCL_LAUNCH_ORDER_IMPLICIT"}) {
    variables = {{name, "1"}};
    EXPECT_NE(problem(22809).find(name), std::string::npos) << problem(22809);
    variables = {{name, ""}};
    EXPECT_EQ(problem(22809), "");
  }
  variables = {{"NCCL_COMM_BLOCKING", "0"}, {"NCCL_LAUNCH_ORDER_IMPLICIT", "0"}};
  EXPECT_EQ(problem(22809), "");
}

TEST(NcclRules, TensorsGoInTheClearBesideTlsOnlyWhereTheUserSaysSo) {
  EXPECT_TRUE(internal::check_nccl_beside_tls(false, false).ok());
  EXPECT_TRUE(internal::check_nccl_beside_tls(true, true).ok());
  const absl::Status refused = internal::check_nccl_beside_tls(true, false);
  EXPECT_NE(refused.message().find("nccl_allow_unencrypted"), absl::string_view::npos) << refused;
}

// ---- Order on a device.

// With the options that users have: devices that run one kernel at a time, and communicators that
// are not ready while one runs, in circles of three.
TEST(NcclRules, CirclesOfThreeDoNotBlock) {
  NetworkOptions options;
  options.workers = 3;
  options.kernels_at_once = 1;
  options.plane.transfer_timeout = std::chrono::minutes(10);
  PlaneNetwork network(options);
  std::vector<TransferPtr> transfers;
  for (int round = 0; round < 20; ++round) {
    for (const auto& [from, to] : {std::pair(0, 1), {1, 2}, {2, 0}}) {
      transfers.push_back(network.begin(from, to));
    }
  }
  for (const TransferPtr& transfer : transfers) expect_moved(*transfer);
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_EQ(network.plane(worker).counters().aborts, 0);
  }
}

// A communicator takes the place while it is being opened: none is opened beside a kernel.
TEST(NcclRules, OpeningWaitsForTheTransferBeforeIt) {
  NetworkOptions options;
  options.workers = 3;
  PlaneNetwork network(options);
  expect_moved(*network.run(0, 1, {10}));
  network.gpus().hold_kernels();
  const TransferPtr first = network.begin(0, 1);
  ASSERT_TRUE(eventually([&] { return network.gpus().calls(Call::kGroupEnd) == 4; }));
  const TransferPtr second = network.begin(0, 2);
  network.drain();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(network.gpus().calls(Call::kInitRank), 2);
  network.gpus().let_kernels_go();
  expect_moved(*first);
  expect_moved(*second);
  EXPECT_EQ(network.gpus().calls(Call::kInitRank), 4);
}

TEST(NcclRules, KernelsAreAsWideAsTheUserAllows) {
  NetworkOptions options;
  options.plane.max_ctas = 2;
  PlaneNetwork network(options);
  expect_moved(*network.run(0, 1, {10}));
  EXPECT_EQ(network.gpus().max_ctas(), 2);
}

// ---- Promises.

// What a device computes for long is no transfer that takes long.
TEST(NcclRules, TheTimeOfATransferBeginsWhenItsDataAreReady) {
  NetworkOptions options;
  options.plane.transfer_timeout = std::chrono::seconds(3);
  std::list<PlaneNetwork> networks;
  std::vector<std::function<void()>> ends;
  for (const int from : {0, 1}) {
    for (const int late : {0, 1}) {
      PlaneNetwork& network = networks.emplace_back(options);
      network.gpus().hold(network.stream(late));
      ends.emplace_back([&network, from, late, transfer = network.begin(from, 1 - from)] {
        EXPECT_FALSE(transfer->is_over());
        network.gpus().let_go(network.stream(late));
        expect_moved(*transfer);
        EXPECT_EQ(network.plane(from).counters().aborts, 0);
      });
    }
  }
  std::this_thread::sleep_for(std::chrono::seconds(4));
  for (const auto& end : ends) end();
}

// The offer comes while the receiver's device gets ready: the promise is made once.
TEST(NcclRules, OffersMayComeWhileTheMemoryGetsFree) {
  for (const auto& [from, to] : {std::pair(0, 1), {1, 0}}) {
    PlaneNetwork network({});
    for (int round = 0; round < 200; ++round) {
      network.hold();
      network.gpus().hold(network.stream(to));
      const TransferPtr transfer = network.begin(from, to);
      std::thread free([&] { network.gpus().let_go(network.stream(to)); });
      network.flow();
      free.join();
      expect_moved(*transfer);
    }
    for (int worker = 0; worker < 2; ++worker) {
      EXPECT_EQ(network.plane(worker).counters().protocol_errors, 0);
    }
  }
}

TEST(NcclRules, WhatIsNeverReadyEndsAtItsTime) {
  for (const auto& [from, to] : {std::pair(0, 1), {1, 0}}) {
    for (const int late : {from, to}) {
      NetworkOptions options;
      options.plane.ready_timeout = milliseconds(100);
      options.plane.transfer_timeout = milliseconds(100);
      PlaneNetwork network(options);
      network.gpus().hold(network.stream(late));
      const TransferPtr transfer = network.begin(from, to);
      EXPECT_FALSE(transfer->sent->wait().ok());
      EXPECT_FALSE(transfer->received->wait().ok());
      // No communicator had to suffer.
      EXPECT_EQ(network.plane(from).counters().aborts, 0);
      network.gpus().let_go(network.stream(late));
    }
  }
}

TEST(NcclRules, OffersThatAreNotReadyCanBeWithdrawn) {
  for (const auto& [from, to] : {std::pair(0, 1), {1, 0}}) {
    PlaneNetwork network({});
    network.gpus().hold(network.stream(from));
    const TransferPtr transfer = network.begin(from, to);
    network.drain();
    network.plane(from).withdraw(network.info(to), transfer->ticket);
    EXPECT_EQ(transfer->sent->wait().code(), absl::StatusCode::kCancelled);
    EXPECT_FALSE(transfer->received->wait().ok());
    network.gpus().let_go(network.stream(from));
    expect_moved(*network.run(from, to, {10}));
  }
}

TEST(NcclRules, LargeTransfersHaveMoreTime) {
  NetworkOptions options;
  options.plane.transfer_timeout = milliseconds(100);
  options.plane.time_per_byte = milliseconds(1);
  PlaneNetwork network(options);
  expect_moved(*network.run(0, 1, {100'000}));
  network.gpus().hold_kernels();
  const TransferPtr transfer = network.make({100'000});
  network.offer(0, 1, transfer);
  network.accept(0, 1, transfer);
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_FALSE(transfer->is_over());
  network.gpus().let_kernels_go();
  expect_moved(*transfer);
}

// ---- Ends.

// The sender's end is good only when the receiver has said so: NCCL's own threads may still have
// what its device is through with.
TEST(NcclRules, TheSenderWaitsForTheReceiversWord) {
  for (const auto& [from, to] : {std::pair(0, 1), {1, 0}}) {
    PlaneNetwork network({});
    expect_moved(*network.run(from, to, {10}));
    network.gpus().hold_kernels();
    const TransferPtr transfer = network.begin(from, to);
    ASSERT_TRUE(eventually([&] { return network.gpus().calls(Call::kGroupEnd) == 4; }));
    network.drain();
    network.hold();
    network.gpus().let_kernels_go();
    EXPECT_EQ(transfer->received->wait(), absl::OkStatus());
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_FALSE(transfer->sent->is_set());
    network.flow();
    expect_moved(*transfer);
    // Of a peer that is lost before, nobody knows.
    network.hold();
    const TransferPtr lost = network.begin(from, to);
    network.plane(from).on_peer_lost(network.info(to));
    EXPECT_EQ(lost->sent->wait().code(), absl::StatusCode::kUnavailable);
    network.plane(to).on_peer_lost(network.info(from));
    network.flow();
    (void)lost->received->wait();
  }
}

// An abort waits for all that the device has to do, the user's long work included. The kernels have
// left by then, so nobody else has to.
TEST(NcclRules, TransfersEndBeforeAbortsThatWaitForTheDevice) {
  NetworkOptions options;
  options.plane.first_retry_delay = milliseconds(20);
  PlaneNetwork network(options);
  expect_moved(*network.run(0, 1, {10}));
  network.gpus().inject("w1", Call::kRecv, Fault::kNeverEnds);
  const TransferPtr stuck = network.begin(0, 1);
  // Without that the plane cannot know when the kernels leave.
  ASSERT_TRUE(eventually([&] { return network.gpus().watched_kernels("w1") == 1; }));
  network.gpus().hold(network.stream(1));
  network.gpus().fail_communicators("w1");
  EXPECT_EQ(stuck->received->wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(network.plane(1).counters().aborts_under_way, 1);
  network.gpus().let_go(network.stream(1));
  EXPECT_TRUE(eventually([&] { return network.plane(1).counters().aborts_under_way == 0; }));
  EXPECT_EQ(stuck->sent->wait().code(), absl::StatusCode::kUnavailable);
}

TEST(NcclRules, WhatNcclMayStillWriteIsReportedAsSuch) {
  NetworkOptions options;
  options.plane.transfer_timeout = std::chrono::seconds(2);
  options.plane.abort_timeout = milliseconds(100);
  PlaneNetwork network(options);
  network.gpus().inject("w1", Call::kAbort, Fault::kHang);
  network.gpus().inject("w1", Call::kRecv, Fault::kNeverEnds);
  const TransferPtr transfer = network.begin(0, 1);
  EXPECT_EQ(transfer->received->wait().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(network.plane(1).counters().threads_left_behind, 1);
  // Another road would write here, and be written over.
  transfer->to = transfer->from;
  network.gpus().release();
  EXPECT_TRUE(eventually([&] { return network.plane(1).counters().threads_left_behind == 0; }));
  EXPECT_FALSE(transfer->is_moved());
}

// Every id that nobody joins leaves a thread at whoever made it.
TEST(NcclRules, PeersThatNeverJoinAreGivenUp) {
  NetworkOptions options;
  options.plane.first_retry_delay = options.plane.max_retry_delay = milliseconds(1);
  PlaneNetwork network(options);
  for (int attempt = 0; attempt < 50; ++attempt) {
    network.gpus().inject("w1", Call::kInitRank, Fault::kFail);
    const TransferPtr transfer = network.begin(0, 1);
    EXPECT_FALSE(transfer->sent->wait().ok());
    EXPECT_FALSE(transfer->received->wait().ok());
    network.drain();
    std::this_thread::sleep_for(milliseconds(2));
  }
  EXPECT_LE(network.gpus().calls(Call::kGetUniqueId), options.plane.max_failed_openings);
  EXPECT_FALSE(network.plane(0).is_usable(network.info(1)));
  bool is_said = false;
  for (const std::string& line : network.logs()) {
    is_said |= line.find("in a row did not come about") != std::string::npos;
  }
  EXPECT_TRUE(is_said);
}

// ---- Captures.

TEST(NcclRules, CapturesOfOthersGoOn) {
  NetworkOptions options;
  options.plane.first_retry_delay = milliseconds(1);
  PlaneNetwork network(options);
  network.gpus().begin_capture();
  expect_moved(*network.run(0, 1, {10}));
  // An abort, and what comes after it.
  network.gpus().hold_kernels();
  const TransferPtr stuck = network.begin(0, 1);
  ASSERT_TRUE(eventually([&] { return network.gpus().calls(Call::kGroupEnd) == 4; }));
  network.gpus().fail_communicators("w0");
  EXPECT_EQ(stuck->sent->wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(stuck->received->wait().ok());
  network.gpus().let_kernels_go();
  EXPECT_TRUE(eventually([&] {
    const TransferPtr again = network.run(1, 0, {10});
    return again->sent->wait().ok() && again->received->wait().ok();
  }));
}

}  // namespace
}  // namespace sinew::testing
