#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <utility>

#include "plane_network.h"
#include "sinew/rpc/planes/nccl/internal/messages.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/support/repetitions.h"

namespace sinew::testing {
namespace {

using internal::nccl::Abort;
using internal::nccl::Accept;
using internal::nccl::Cause;
using internal::nccl::Direction;
using internal::nccl::encode;
using internal::nccl::End;
using internal::nccl::Message;
using internal::nccl::Offer;
using internal::nccl::Open;
using internal::nccl::Retract;
using internal::nccl::Start;
using Call = FakeGpus::Call;
using TransferPtr = std::shared_ptr<TestTransfer>;

// A peer of worker 1 that has no plane and says what it likes.
class Forger {
 public:
  Forger(PlaneNetwork& network, std::int32_t rank)
      : network_(network), info_{"forger", rank, Incarnation{666}} {}

  const WorkerInfo& info() const { return info_; }
  void say(Message message) { network_.plane(1).on_message(info_, encode({std::move(message)})); }
  void say_bytes(const std::string& bytes) { network_.plane(1).on_message(info_, bytes); }

  // Worker 1 makes an offer to it, or accepts one of it.
  TransferPtr get_offer() {
    auto transfer = network_.make({10});
    transfer->ticket = network_.plane(1).offer(
        info_, 0, {{transfer->from[0].data(), 10, 0, network_.stream(1), nullptr}},
        [transfer](absl::Status status) { transfer->sent->set(std::move(status)); });
    return transfer;
  }
  TransferPtr get_accept(std::uint64_t ticket) {
    auto transfer = network_.make({10});
    network_.plane(1).accept(
        info_, ticket, {{transfer->to[0].data(), 10, 0, network_.stream(1), nullptr}},
        [transfer](absl::Status status) { transfer->received->set(std::move(status)); });
    return transfer;
  }

 private:
  PlaneNetwork& network_;
  const WorkerInfo info_;
};

Open open_message(std::uint64_t epoch) {
  return Open{{0, 0}, epoch, 22809, std::string(internal::NcclApi::kIdBytes, 'x')};
}

void expect_honest_peer_is_served(PlaneNetwork& network) {
  for (const auto& [from, to] : {std::pair(0, 1), {1, 0}}) {
    const TransferPtr transfer = network.run(from, to, {1000});
    EXPECT_EQ(transfer->received->wait(), absl::OkStatus());
    EXPECT_TRUE(transfer->is_moved());
  }
}

// Runs `attack`, after which the plane has to be closed for the forger, and for nobody else.
void expect_closed(std::int32_t rank, const std::function<void(Forger&)>& attack) {
  PlaneNetwork network({});
  Forger forger(network, rank);
  EXPECT_TRUE(network.plane(1).is_usable(forger.info()));
  attack(forger);
  EXPECT_EQ(network.plane(1).counters().protocol_errors, 1);
  EXPECT_FALSE(network.plane(1).is_usable(forger.info()));
  EXPECT_EQ(forger.get_offer()->sent->wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(forger.get_accept(1 << 20)->received->wait().code(), absl::StatusCode::kUnavailable);
  forger.say(Offer{1 << 20, {0, 0}, {10}});
  expect_honest_peer_is_served(network);
  EXPECT_FALSE(network.logs().empty());
}

constexpr std::int32_t kLeader = -5;
constexpr std::int32_t kFollower = 5;

TEST(HostilePeers, Garbage) {
  expect_closed(kLeader, [](Forger& forger) { forger.say_bytes("\xff\xff\xff garbage"); });
}

TEST(HostilePeers, EndOfAllTransfersWhenThePlaneIsClosed) {
  PlaneNetwork network({});
  Forger forger(network, kLeader);
  forger.say(Offer{1, {0, 0}, {10}});
  const TransferPtr sent = forger.get_offer();
  const TransferPtr received = forger.get_accept(1);
  const TransferPtr early = forger.get_accept(99);
  forger.say(open_message(1));
  ASSERT_TRUE(eventually([&] { return network.gpus().calls(Call::kInitRank) == 1; }));
  forger.say_bytes("\xff");
  EXPECT_EQ(sent->sent->wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(received->received->wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(early->received->wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(eventually([&] { return network.gpus().live().communicators == 0; }));
}

TEST(HostilePeers, OffersOutOfOrder) {
  expect_closed(kLeader, [](Forger& forger) {
    forger.say(Offer{2, {0, 0}, {10}});
    forger.say(Offer{1, {0, 0}, {10}});
  });
}

TEST(HostilePeers, LeaderStartsBeforeThereIsACommunicator) {
  expect_closed(kLeader, [](Forger& forger) {
    const TransferPtr transfer = forger.get_offer();
    forger.say(Start{{0, 0}, 1, 1, transfer->ticket, Direction::kIncoming});
    EXPECT_EQ(transfer->sent->wait().code(), absl::StatusCode::kUnavailable);
  });
}

TEST(HostilePeers, LeaderStartsWhatWasNeverOffered) {
  expect_closed(kLeader, [](Forger& forger) {
    const TransferPtr transfer = forger.get_offer();
    forger.say(open_message(1));
    forger.say(Start{{0, 0}, 1, 1, transfer->ticket + 1, Direction::kIncoming});
  });
}

TEST(HostilePeers, LeaderStartsWhatWasNotAccepted) {
  expect_closed(kLeader, [](Forger& forger) {
    const TransferPtr promised = forger.get_offer();
    forger.say(Offer{1, {0, 0}, {10}});
    forger.say(open_message(1));
    forger.say(Start{{0, 0}, 1, 1, 1, Direction::kOutgoing});
    EXPECT_EQ(promised->sent->wait().code(), absl::StatusCode::kUnavailable);
  });
}

TEST(HostilePeers, LeaderSkipsANumber) {
  expect_closed(kLeader, [](Forger& forger) {
    const TransferPtr transfer = forger.get_offer();
    forger.say(open_message(1));
    forger.say(Start{{0, 0}, 1, 2, transfer->ticket, Direction::kIncoming});
  });
}

TEST(HostilePeers, LeaderStartsTwice) {
  expect_closed(kLeader, [](Forger& forger) {
    const TransferPtr transfer = forger.get_offer();
    forger.say(open_message(1));
    forger.say(Start{{0, 0}, 1, 1, transfer->ticket, Direction::kIncoming});
    forger.say(Start{{0, 0}, 1, 2, transfer->ticket, Direction::kIncoming});
  });
}

TEST(HostilePeers, LeaderEndsWhatItHasStarted) {
  expect_closed(kLeader, [](Forger& forger) {
    const TransferPtr transfer = forger.get_offer();
    forger.say(open_message(1));
    forger.say(Start{{0, 0}, 1, 1, transfer->ticket, Direction::kIncoming});
    forger.say(End{transfer->ticket, Direction::kIncoming, absl::CancelledError("no")});
  });
}

TEST(HostilePeers, LeaderOpensTwoCommunicators) {
  expect_closed(kLeader, [](Forger& forger) {
    (void)forger.get_offer();
    forger.say(open_message(1));
    forger.say(open_message(2));
  });
}

TEST(HostilePeers, LeaderOpensOnADeviceThatIsNotThere) {
  expect_closed(kLeader, [](Forger& forger) {
    Open open = open_message(1);
    open.link.peer_device = 7;
    forger.say(open);
  });
}

TEST(HostilePeers, LeaderAsksForItsPromiseBack) {
  expect_closed(kLeader, [](Forger& forger) { forger.say(Retract{1, Direction::kOutgoing}); });
}

TEST(HostilePeers, LeaderAcceptsRatherThanStarts) {
  expect_closed(kLeader, [](Forger& forger) { forger.say(Accept{forger.get_offer()->ticket}); });
}

TEST(HostilePeers, FollowerLeads) {
  expect_closed(kFollower, [](Forger& forger) { forger.say(open_message(1)); });
  expect_closed(kFollower, [](Forger& forger) {
    forger.say(Start{{0, 0}, 1, 1, 1, Direction::kOutgoing});
  });
}

TEST(HostilePeers, FollowerAcceptsTwice) {
  expect_closed(kFollower, [](Forger& forger) {
    const TransferPtr transfer = forger.get_offer();
    forger.say(Accept{transfer->ticket});
    forger.say(Accept{transfer->ticket});
  });
}

TEST(HostilePeers, UnwantedCommunicatorsAreNotMade) {
  PlaneNetwork network({});
  Forger forger(network, kLeader);
  for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) forger.say(open_message(epoch));
  expect_honest_peer_is_served(network);
  EXPECT_EQ(network.gpus().calls(Call::kInitRank), 2);  // the honest peer's
}

TEST(HostilePeers, WordsAboutNothingChangeNothing) {
  PlaneNetwork network({});
  Forger forger(network, kFollower);
  forger.say(Accept{77});
  forger.say(Retract{77, Direction::kOutgoing});
  forger.say(End{78, Direction::kIncoming, absl::CancelledError("no")});
  forger.say(Offer{79, {0, 500}, {10}});  // to a device that is not there
  forger.say(Abort{{0, 500}, 3, Cause::kFailed, "no"});
  EXPECT_TRUE(network.plane(1).is_usable(forger.info()));
  EXPECT_EQ(network.plane(1).counters().protocol_errors, 0);
  EXPECT_EQ(network.plane(1).counters().transfers, 0);
}

TEST(HostilePeers, WhatIsKeptIsBounded) {
  PlaneNetwork network({});
  Forger forger(network, kFollower);
  for (std::uint64_t ticket = 1; ticket <= 5000; ++ticket) {
    forger.say(Offer{ticket, {0, 0}, {10}});
  }
  EXPECT_EQ(network.plane(1).counters().transfers, 4096);
  expect_honest_peer_is_served(network);
}

// Nobody tells of notes to somebody whom the network does not know that they have been handled.
TEST(HostilePeers, WhoTakesNothingIsNotHeardForEver) {
  PlaneNetwork network({});
  const WorkerInfo deaf{"deaf", kFollower, Incarnation{667}};
  for (std::uint64_t ticket = 1; ticket <= 20000; ++ticket) {
    network.plane(1).on_message(deaf, encode({Offer{ticket, {0, 9}, {10}}}));
  }
  EXPECT_FALSE(network.plane(1).is_usable(deaf));
  expect_honest_peer_is_served(network);
}

// Any bytes at all, most of them nearly right.
TEST(HostilePeers, MutatedMessages) {
  std::mt19937 random(7);
  for (int round = 0; round < repetitions(200); ++round) {
    SCOPED_TRACE(round);
    PlaneNetwork network({});
    Forger forger(network, round % 2 == 0 ? kLeader : kFollower);
    const TransferPtr offered = forger.get_offer();
    const TransferPtr accepted = forger.get_accept(1);
    const std::vector<Message> script{
        Offer{1, {0, 0}, {10}},
        open_message(1),
        Accept{offered->ticket},
        Start{{0, 0}, 1, 1, offered->ticket, Direction::kIncoming},
        Start{{0, 0}, 1, 2, 1, Direction::kOutgoing},
        Retract{1, Direction::kOutgoing},
        End{offered->ticket, Direction::kIncoming, absl::CancelledError("no")},
        Abort{{0, 0}, 1, Cause::kFailed, "no"}};
    for (const Message& message : script) {
      std::string bytes = encode({message});
      if (random() % 3 == 0) bytes[random() % bytes.size()] ^= 1 << (random() % 8);
      if (random() % 20 == 0) bytes.resize(random() % bytes.size());
      forger.say_bytes(bytes);
    }
    network.plane(1).on_peer_lost(forger.info());
    EXPECT_FALSE(offered->sent->wait().ok());
    EXPECT_FALSE(accepted->received->wait().ok());
    if (round % 20 == 0) expect_honest_peer_is_served(network);
  }
}

}  // namespace
}  // namespace sinew::testing
