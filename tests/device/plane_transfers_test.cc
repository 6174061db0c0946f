#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "plane_network.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/support/repetitions.h"

namespace sinew::testing {
namespace {

using TransferPtr = std::shared_ptr<TestTransfer>;
using std::chrono::milliseconds;

absl::StatusCode code(const std::shared_ptr<Outcome>& outcome) { return outcome->wait().code(); }

// Both roles: the lower rank leads.
class PlaneTransfers : public ::testing::TestWithParam<std::pair<int, int>> {
 protected:
  int from() const { return GetParam().first; }
  int to() const { return GetParam().second; }
};

INSTANTIATE_TEST_SUITE_P(Roles, PlaneTransfers,
                         ::testing::Values(std::make_pair(0, 1), std::make_pair(1, 0)),
                         [](const auto& roles) {
                           return roles.param.first == 0 ? "SenderLeads" : "ReceiverLeads";
                         });

TEST_P(PlaneTransfers, BuffersArrive) {
  PlaneNetwork network({});
  EXPECT_TRUE(network.plane(from()).is_usable(network.info(to())));
  expect_moved(*network.run(from(), to(), {1, 4096, 0, 3000000, 17}));
  expect_moved(*network.run(from(), to(), {0}));
  EXPECT_EQ(network.gpus().calls(FakeGpus::Call::kInitRank), 2);  // one communicator for both
  EXPECT_TRUE(eventually([&] { return network.plane(from()).counters().transfers == 0; }));
  EXPECT_EQ(network.plane(from()).counters().transfers_sent, 2);
  EXPECT_EQ(network.plane(to()).counters().transfers_received, 2);
  EXPECT_EQ(network.plane(from()).counters().bytes_sent, 3004114);
  EXPECT_EQ(network.plane(to()).counters().bytes_received, 3004114);
  EXPECT_EQ(network.plane(from()).counters().failures, 0);
}

TEST_P(PlaneTransfers, AcceptMayOvertakeTheOffer) {
  PlaneNetwork network({});
  network.hold();
  const TransferPtr transfer = network.make({100});
  network.offer(from(), to(), transfer);
  network.accept(from(), to(), transfer);
  network.flow();
  expect_moved(*transfer);
}

TEST_P(PlaneTransfers, WaitForTheStreamsOfBothEnds) {
  for (const int held : {from(), to()}) {
    NetworkOptions options;
    options.devices = 2;
    PlaneNetwork network(options);
    network.gpus().hold(network.stream(held));
    const TransferPtr transfer = network.make({100});
    network.offer(from(), to(), transfer);
    network.accept(from(), to(), transfer);
    // Others are not kept waiting, nor is anything of NCCL behind what the device has to do.
    const TransferPtr other = network.make({100});
    network.offer(from(), to(), other, 1, 1);
    network.accept(from(), to(), other, 1);
    expect_moved(*other);
    network.drain();
    EXPECT_EQ(network.gpus().calls(FakeGpus::Call::kGroupEnd), 2);
    EXPECT_FALSE(transfer->sent->is_set());
    EXPECT_FALSE(transfer->received->is_set());
    // What the stream does before the transfer is what is sent.
    transfer->from[0].assign(100, 7);
    network.gpus().let_go(network.stream(held));
    expect_moved(*transfer);
    EXPECT_EQ(transfer->to[0][99], 7);
  }
}

TEST_P(PlaneTransfers, OtherSizesThanOfferedEndBothEnds) {
  for (const bool early : {false, true}) {
    PlaneNetwork network({});
    if (early) network.hold();
    const TransferPtr transfer = network.make({100, 200});
    network.offer(from(), to(), transfer);
    network.drain_if(!early);
    transfer->to[1].resize(201);
    network.accept(from(), to(), transfer);
    network.flow();
    EXPECT_EQ(code(transfer->received), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(code(transfer->sent), absl::StatusCode::kInvalidArgument);
    // Nothing was launched for it, and the plane is as good as before.
    EXPECT_EQ(network.gpus().calls(FakeGpus::Call::kInitRank), 0);
    expect_moved(*network.run(from(), to(), {5}));
  }
}

TEST_P(PlaneTransfers, AnotherDeviceThanOfferedEndsBothEnds) {
  NetworkOptions options;
  options.devices = 2;
  PlaneNetwork network(options);
  const TransferPtr transfer = network.make({100});
  network.offer(from(), to(), transfer, 0, 1);
  network.accept(from(), to(), transfer, 0);
  EXPECT_EQ(code(transfer->received), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(transfer->sent), absl::StatusCode::kInvalidArgument);
}

TEST_P(PlaneTransfers, DevicesArePairedAsAsked) {
  NetworkOptions options;
  options.devices = 2;
  PlaneNetwork network(options);
  std::vector<TransferPtr> transfers;
  for (const int from_device : {0, 1, 0, 1}) {
    for (const int to_device : {1, 0}) {
      const TransferPtr transfer = network.make({100});
      network.offer(from(), to(), transfer, from_device, to_device);
      network.accept(from(), to(), transfer, to_device);
      transfers.push_back(transfer);
    }
  }
  for (const TransferPtr& transfer : transfers) expect_moved(*transfer);
  EXPECT_EQ(network.gpus().calls(FakeGpus::Call::kInitRank), 8);
}

TEST_P(PlaneTransfers, DeclinedOffersEnd) {
  for (const bool early : {false, true}) {
    PlaneNetwork network({});
    if (early) network.hold();
    const TransferPtr transfer = network.make({100});
    network.offer(from(), to(), transfer);
    network.drain_if(!early);
    network.plane(to()).decline(network.info(from()), transfer->ticket);
    network.flow();
    EXPECT_EQ(code(transfer->sent), absl::StatusCode::kUnavailable);
    // It stays declined.
    network.drain();
    network.accept(from(), to(), transfer);
    EXPECT_EQ(code(transfer->received), absl::StatusCode::kUnavailable);
  }
}

TEST_P(PlaneTransfers, DecliningWhatWasAcceptedChangesNothing) {
  PlaneNetwork network({});
  const TransferPtr transfer = network.make({100});
  network.offer(from(), to(), transfer);
  network.accept(from(), to(), transfer);
  network.plane(to()).decline(network.info(from()), transfer->ticket);
  expect_moved(*transfer);
}

TEST_P(PlaneTransfers, WithdrawnOffersEnd) {
  PlaneNetwork network({});
  const TransferPtr transfer = network.make({100});
  network.offer(from(), to(), transfer);
  network.drain();
  network.plane(from()).withdraw(network.info(to()), transfer->ticket);
  EXPECT_EQ(code(transfer->sent), absl::StatusCode::kCancelled);
  network.drain();
  network.accept(from(), to(), transfer);
  EXPECT_EQ(code(transfer->received), absl::StatusCode::kUnavailable);
  EXPECT_EQ(network.plane(from()).counters().failures, 0);
  expect_moved(*network.run(from(), to(), {5}));
}

TEST_P(PlaneTransfers, WithdrawnAfterAcceptBothEndsAgree) {
  // The messages cross: whatever the leader decides holds for both ends.
  PlaneNetwork network({});
  for (int i = 0; i < 50; ++i) {
    const TransferPtr transfer = network.make({100});
    network.offer(from(), to(), transfer);
    if (i % 2 == 0) network.drain();
    network.accept(from(), to(), transfer);
    if (i % 3 == 0) network.drain();
    network.plane(from()).withdraw(network.info(to()), transfer->ticket);
    const absl::Status sent = transfer->sent->wait();
    const absl::Status received = transfer->received->wait();
    EXPECT_EQ(sent.ok(), received.ok()) << sent << " / " << received;
    if (sent.ok()) {
      EXPECT_TRUE(transfer->is_moved());
    } else {
      EXPECT_EQ(sent.code(), absl::StatusCode::kCancelled) << sent;
    }
  }
  EXPECT_EQ(network.plane(from()).counters().aborts, 0);
  EXPECT_EQ(network.plane(to()).counters().aborts, 0);
}

TEST_P(PlaneTransfers, WithdrawingWhatHasBegunChangesNothing) {
  PlaneNetwork network({});
  network.gpus().hold_kernels();
  const TransferPtr transfer = network.make({100});
  network.offer(from(), to(), transfer);
  network.accept(from(), to(), transfer);
  ASSERT_TRUE(eventually([&] { return network.gpus().calls(FakeGpus::Call::kGroupEnd) == 2; }));
  network.plane(from()).withdraw(network.info(to()), transfer->ticket);
  network.gpus().let_kernels_go();
  expect_moved(*transfer);
}

TEST_P(PlaneTransfers, OffersThatNobodyAcceptsEndAtTheDeadline) {
  NetworkOptions options;
  options.plane.ready_timeout = milliseconds(50);
  PlaneNetwork network(options);
  const TransferPtr transfer = network.make({100});
  network.offer(from(), to(), transfer);
  EXPECT_EQ(code(transfer->sent), absl::StatusCode::kDeadlineExceeded);
  network.drain();
  // No communicator had to suffer.
  EXPECT_TRUE(network.plane(from()).is_usable(network.info(to())));
  EXPECT_TRUE(eventually([&] { return network.plane(to()).counters().transfers == 0; }));
}

TEST_P(PlaneTransfers, WhatIsAcceptedButNeverOfferedEndsAtTheDeadline) {
  NetworkOptions options;
  options.plane.transfer_timeout = milliseconds(50);
  PlaneNetwork network(options);
  const TransferPtr transfer = network.make({100});
  transfer->ticket = 12345;
  network.accept(from(), to(), transfer);
  EXPECT_EQ(code(transfer->received), absl::StatusCode::kDeadlineExceeded);
}

TEST_P(PlaneTransfers, SecondAnswersToAnOfferAreRefused) {
  PlaneNetwork network({});
  network.hold();
  const TransferPtr transfer = network.make({100});
  network.offer(from(), to(), transfer);
  network.accept(from(), to(), transfer);
  const TransferPtr again = network.make({100});
  again->ticket = transfer->ticket;
  network.accept(from(), to(), again);
  EXPECT_EQ(code(again->received), absl::StatusCode::kFailedPrecondition);
  network.flow();
  expect_moved(*transfer);
}

TEST_P(PlaneTransfers, NonsenseIsRefused) {
  PlaneNetwork network({});
  const TransferPtr none = network.make({});
  network.offer(from(), to(), none);
  EXPECT_EQ(code(none->sent), absl::StatusCode::kInvalidArgument);
  const TransferPtr nowhere = network.make({1});
  network.offer(from(), to(), nowhere, 0, 5);  // the receiver has one device
  EXPECT_EQ(code(nowhere->sent), absl::StatusCode::kInvalidArgument);
  const TransferPtr negative = network.make({1});
  network.offer(from(), to(), negative, 0, -1);
  EXPECT_EQ(code(negative->sent), absl::StatusCode::kInvalidArgument);
  const TransferPtr self = network.make({1});
  network.offer(from(), from(), self);
  EXPECT_EQ(code(self->sent), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(network.plane(from()).is_usable(network.info(from())));
  expect_moved(*network.run(from(), to(), {5}));
}

TEST_P(PlaneTransfers, WhoAcceptsAnOfferThatCouldNotBeMadeIsTold) {
  PlaneNetwork network({});
  const TransferPtr transfer = network.make({});
  network.offer(from(), to(), transfer);
  transfer->to.emplace_back(7);
  network.accept(from(), to(), transfer);
  EXPECT_FALSE(transfer->received->wait().ok());
  EXPECT_FALSE(transfer->sent->wait().ok());
}

TEST(PlaneTraffic, PeersWithoutPlaneAreNotUsable) {
  NetworkOptions options;
  options.plane.peer_has_plane = [](const WorkerInfo& peer) { return peer.rank != 1; };
  PlaneNetwork network(options);
  EXPECT_FALSE(network.plane(0).is_usable(network.info(1)));
  EXPECT_TRUE(network.plane(1).is_usable(network.info(0)));
}

TEST(PlaneTraffic, OnlyThoseWhomAListNamesAreRememberedAsLost) {
  std::atomic<bool> listed{true};
  NetworkOptions options;
  options.workers = 3;
  options.plane.peer_has_plane = [&listed](const WorkerInfo& peer) {
    return listed || peer.rank != 1;
  };
  PlaneNetwork network(options);
  auto& plane = network.plane(0);
  plane.on_peer_lost(network.info(1));
  EXPECT_FALSE(plane.is_usable(network.info(1)));
  listed = false;
  plane.on_peer_lost(network.info(2));
  listed = true;
  EXPECT_TRUE(plane.is_usable(network.info(1)));
  EXPECT_FALSE(plane.is_usable(network.info(2)));
}

// Offers and accepts from several threads, in all directions, over a bad channel.
void run_traffic(PlaneNetwork& network, int workers, int devices, int count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TransferPtr> transfers;
  for (int i = 0; i < count; ++i) {
    const int from = static_cast<int>(random() % workers);
    const int to = static_cast<int>((from + 1 + random() % (workers - 1)) % workers);
    std::vector<std::size_t> sizes(1 + random() % 4);
    for (std::size_t& size : sizes) size = std::size_t{1} << (random() % (i % 16 == 0 ? 21 : 12));
    const int from_device = static_cast<int>(random() % devices);
    const int to_device = static_cast<int>(random() % devices);
    const TransferPtr transfer = network.make(sizes);
    network.offer(from, to, transfer, from_device, to_device);
    network.accept(from, to, transfer, to_device);
    transfers.push_back(transfer);
  }
  for (const TransferPtr& transfer : transfers) expect_moved(*transfer);
}

TEST(PlaneTraffic, ArrivesFromAllToAll) {
  for (std::uint32_t seed = 1; seed <= 2; ++seed) {
    SCOPED_TRACE(seed);
    NetworkOptions options;
    options.workers = 3;
    options.devices = 2;
    options.seed = seed;
    options.plane.transfer_timeout = std::chrono::minutes(10);
    PlaneNetwork network(options);
    std::vector<std::thread> threads;
    for (std::uint32_t thread = 0; thread < 3; ++thread) {
      threads.emplace_back(
          [&, thread] { run_traffic(network, 3, 2, repetitions(80), 100 * seed + thread); });
    }
    for (std::thread& thread : threads) thread.join();
    for (int worker = 0; worker < 3; ++worker) {
      EXPECT_EQ(network.plane(worker).counters().failures, 0);
      EXPECT_EQ(network.plane(worker).counters().aborts, 0);
    }
  }
}

// The rest of what there is to be said waits at its plane, in order, so that a peer that is slow is
// not flooded.
TEST(PlaneTraffic, HasFewNotesOnTheirWay) {
  NetworkOptions options;
  options.plane.transfer_timeout = std::chrono::minutes(10);
  PlaneNetwork network(options);
  network.hold();
  std::vector<TransferPtr> transfers;
  for (int i = 0; i < 200; ++i) {
    const TransferPtr transfer = network.make({10});
    network.offer(0, 1, transfer);
    network.accept(0, 1, transfer);
    transfers.push_back(transfer);
  }
  network.flow();
  for (const TransferPtr& transfer : transfers) expect_moved(*transfer);
  EXPECT_LE(network.most_on_the_way(), 16);
}

// Devices that run one kernel at a time, in any order, would wait for each other in a circle if
// transfers were launched before both ends have a place.
TEST(PlaneTraffic, CirclesDoNotBlock) {
  for (const int width : {1, 2}) {
    SCOPED_TRACE(width);
    NetworkOptions options;
    options.workers = 3;
    options.kernels_at_once = width;
    options.plane.max_active_transfers = width;
    // All are offered at once; on a busy machine the last ones wait for long.
    options.plane.transfer_timeout = std::chrono::minutes(10);
    PlaneNetwork network(options);
    std::vector<TransferPtr> transfers;
    for (int round = 0; round < repetitions(60); ++round) {
      for (const auto& [from, to] : {std::pair(0, 1), {1, 2}, {2, 0}, {1, 0}, {0, 2}, {2, 1}}) {
        transfers.push_back(network.make({64, 1000}));
        network.offer(from, to, transfers.back());
        network.accept(from, to, transfers.back());
      }
    }
    for (const TransferPtr& transfer : transfers) expect_moved(*transfer);
    for (int worker = 0; worker < 3; ++worker) {
      EXPECT_EQ(network.plane(worker).counters().aborts, 0);
    }
  }
}

TEST(PlaneTraffic, CallbacksMayOfferAgain) {
  PlaneNetwork network({});
  const TransferPtr second = network.make({10});
  const TransferPtr first = network.make({10});
  std::vector<internal::DeviceBuffer> buffers{
      {first->from[0].data(), 10, 0, network.stream(0), nullptr}};
  first->ticket =
      network.plane(0).offer(network.info(1), 0, std::move(buffers), [&](absl::Status status) {
        network.offer(0, 1, second);
        first->sent->set(std::move(status));
      });
  network.accept(0, 1, first);
  expect_moved(*first);
  network.accept(0, 1, second);
  expect_moved(*second);
}

}  // namespace
}  // namespace sinew::testing
