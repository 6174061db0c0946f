// Frames that no worker would send (docs/link.md): whoever sends them loses its connection, or has
// said nothing; the worker that gets them and everybody else go on.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/link/header_codec.h"
#include "sinew/rpc/link/link_table.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/rpc/worker/worker_links.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/raw_peer.h"

using sinew::Worker;
using sinew::internal::FrameKind;
using sinew::internal::FrameNumbers;
using sinew::internal::Lane;
using sinew::internal::LinkHeader;
using sinew::testing::eventually;
using sinew::testing::Handshake;
using sinew::testing::RawPeer;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace lies {

int rank_of_caller() { return sinew::CallContext::current().caller().rank; }

}  // namespace lies

SINEW_METHOD(lies::rank_of_caller);

namespace {

constexpr std::size_t kWindow = std::size_t{8} << 20;
constexpr std::uint64_t kHuge = std::uint64_t{1} << 62;

/// A liar, who is no member, and a worker that takes 8 MiB of requests at a time.
class LinkLies : public ::testing::Test {
 protected:
  void SetUp() override {
    sinew::testing::ClusterOptions options;
    options.transport = sinew::testing::ClusterTransport::kGrpc;
    options.methods = testapp::methods();
    options.methods.add<&lies::rank_of_caller>();
    options.tweak = [](int, sinew::WorkerOptions& worker) {
      worker.receive_window_bytes = kWindow;
      worker.send_window_bytes = kWindow;
    };
    cluster_ = std::make_unique<sinew::testing::Cluster>(std::move(options));
    running_ = worker(0).peer(1).async<&testapp::stall>();
    ASSERT_TRUE(eventually([&] { return worker(0).peer(1).call<&testapp::stalled>() == 1; }));
    ASSERT_TRUE(liar_.connect(address()).ok());
  }
  void TearDown() override {
    EXPECT_FALSE(running_.done());
    worker(0).peer(1).call<&testapp::release>();
    EXPECT_EQ(running_.wait(), 1);
  }

  const Worker& worker(int rank) const { return cluster_->worker(rank); }
  std::string address() const { return worker(1).address(); }

  /// The liar's link stands, and so does its connection.
  void expect_heard() {
    const auto answer = liar_.control_call("sinew.worker.heard");
    EXPECT_TRUE(answer.ok()) << answer.status();
    EXPECT_FALSE(liar_.is_down());
  }
  /// The connection ends, and another one of the same link is welcome.
  void expect_cut_off() {
    EXPECT_TRUE(liar_.wait_down());
    const absl::Status again = liar_.connect(address());
    EXPECT_TRUE(again.ok()) << again;
  }

  std::unique_ptr<sinew::testing::Cluster> cluster_;
  sinew::Future<int> running_;
  RawPeer liar_{{"liar", -1, {}}};
};

sinew::proto::Envelope list_call(std::uint64_t id) {
  sinew::proto::Envelope envelope;
  envelope.mutable_call()->set_id(id);
  envelope.mutable_call()->set_method("sinew.worker.heard");
  envelope.mutable_call()->add_arguments()->set_binary("");
  return envelope;
}

TEST_F(LinkLies, HeadersThatAreNone) {
  const auto bytes_of = [](const std::function<void(sinew::proto::LinkHeader&)>& fill) {
    sinew::proto::LinkHeader header;
    fill(header);
    return header.SerializeAsString();
  };
  const std::string garbage[] = {
      std::string(100, '\xff'),
      bytes_of([](auto& header) { header.set_kind(static_cast<sinew::proto::FrameKind>(9)); }),
      bytes_of([](auto& header) { header.set_kind(static_cast<sinew::proto::FrameKind>(-1)); }),
      // A frame without a number, and one that should have none.
      bytes_of([](auto& header) { header.set_kind(sinew::proto::REQUEST); }),
      bytes_of([](auto& header) { header.set_number(1); }),
      // Receipts: half a range, one that goes backwards, and one from nothing.
      bytes_of([](auto& header) { header.add_received_calls(1); }),
      bytes_of([](auto& header) {
        header.add_received_control(2);
        header.add_received_control(1);
      }),
      bytes_of([](auto& header) {
        header.add_received_control(0);
        header.add_received_control(1);
      }),
  };
  for (const std::string& header : garbage) {
    for (const Lane lane : {Lane::kControl, Lane::kCalls}) {
      liar_.send_bytes(lane, header, "nothing");
      expect_cut_off();
    }
  }
}

TEST_F(LinkLies, NumbersInAnyOrderAreTakenOnceEach) {
  // 3, 1, 1, 2, 3: with another call each time.
  std::uint64_t id = 1000;
  for (const std::uint64_t number : {3, 1, 1, 2, 3}) {
    liar_.send(FrameKind::kControl, list_call(++id),
               [number](LinkHeader& header) { header.number = number; });
  }
  for (const std::uint64_t once : {1001, 1002, 1004}) {
    EXPECT_TRUE(liar_.reply(once).has_value()) << once;
  }
  liar_.send(FrameKind::kControl, list_call(2000));  // number 6
  EXPECT_TRUE(liar_.reply(2000).has_value());
  for (const sinew::proto::Envelope& envelope : liar_.heard()) {
    EXPECT_NE(envelope.reply().id(), 1003u);
    EXPECT_NE(envelope.reply().id(), 1005u);
  }
  EXPECT_EQ(liar_.heard().size(), 4u);
}

TEST_F(LinkLies, NumbersWithTooManyGaps) {
  for (const Lane lane : {Lane::kControl, Lane::kCalls}) {
    LinkHeader header;
    header.kind = lane == Lane::kControl ? FrameKind::kControl : FrameKind::kReply;
    header.is_void = true;
    for (std::size_t i = 0; i < FrameNumbers::kMaxRuns + 1; ++i) {
      header.number = 1000 + 2 * i;
      liar_.send_bytes(lane, sinew::internal::write_header(header));
    }
    expect_cut_off();
    header.number = UINT64_MAX;
    liar_.send_bytes(lane, sinew::internal::write_header(header));
    expect_cut_off();
  }
}

TEST_F(LinkLies, VoidFramesThatTookMoreThanThereIs) {
  for (const FrameKind kind : {FrameKind::kRequest, FrameKind::kReply, FrameKind::kControl}) {
    for (const std::uint64_t bytes : {kHuge, UINT64_MAX, UINT64_MAX - 255}) {
      liar_.send_void(kind, bytes);
      expect_cut_off();
    }
  }
  // One that took some room has given it back.
  for (int i = 0; i < 100; ++i) liar_.send_void(FrameKind::kRequest, kWindow - 1024);
  EXPECT_TRUE(liar_.wait_receipts());
  expect_heard();
}

TEST_F(LinkLies, RequestsBeyondTheRoom) {
  const auto large = [](sinew::proto::Call& call) {
    call.add_arguments()->set_text(std::string(3 << 20, 'x'));
  };
  liar_.call("testapp::echo", large);  // Held: it is no member.
  EXPECT_TRUE(liar_.wait_receipts());
  expect_heard();
  // What is refused gives its room back with the receipt for that.
  liar_.fall_silent();
  for (int i = 0; i < 3; ++i) liar_.call("testapp::echo", large);
  expect_cut_off();
  EXPECT_EQ(worker(0).peer(1).call<&testapp::echo>("small"), "small");
}

// Each is refused, and whoever does not read that it was has no room for more.
TEST_F(LinkLies, RequestsWhoseRefusalsNobodyReads) {
  liar_.fall_silent();
  for (int i = 0; i < 4096 && !liar_.is_down(); ++i) {
    liar_.call("testapp::echo", [](sinew::proto::Call& call) {
      call.add_arguments()->set_text(std::string(4 << 10, 'x'));
    });
  }
  EXPECT_TRUE(liar_.wait_down());
  EXPECT_EQ(worker(0).peer(1).call<&testapp::echo>("small"), "small");
}

TEST_F(LinkLies, ReceiptsAndRoomThatCannotBe) {
  for (int i = 0; i < 100; ++i) {
    liar_.send_link([](LinkHeader& header) {
      for (auto& lane : header.received) {
        for (int range = 0; range < 200; ++range) lane.push_back({1, UINT64_MAX});
      }
      header.returned_frames = UINT64_MAX;
      header.returned_bytes = UINT64_MAX;
    });
  }
  expect_heard();
  EXPECT_EQ(worker(0).peer(1).call<&testapp::echo>("small"), "small");
}

TEST_F(LinkLies, AnswersToHeartbeatsThatWereNeverSent) {
  // On a link with a short lease: who only pretends to answer is given up.
  liar_.disconnect();
  liar_.forget();
  RawPeer other({"other", -1, {}});
  Handshake brief;
  brief.change = [](sinew::proto::Hello& hello) {
    hello.set_beat_interval_us(300000);
    hello.set_lease_us(2000000);
  };
  ASSERT_TRUE(other.connect(address(), brief).ok());
  EXPECT_TRUE(other.control_call("sinew.worker.heard").ok());
  other.fall_silent();
  EXPECT_TRUE(eventually([&] {
    other.send_link([](LinkHeader& header) { header.beat_reply = 1000; });
    return other.is_down();
  }));
  EXPECT_TRUE(other.wait_ended(address()));
}

TEST_F(LinkLies, HeartbeatsAreAnswered) {
  const int before = liar_.beats_answered();
  liar_.send_link([](LinkHeader& header) { header.beat = 77; });
  EXPECT_TRUE(eventually([&] { return liar_.beats_answered() > before; }));
}

TEST_F(LinkLies, TermsThatDoNotFit) {
  const std::pair<std::uint64_t, std::uint64_t> terms[] = {
      {0, 60000000},       // Beats without a pause.
      {1, 60000000},       // Nearly so.
      {1000000, 1000},     // A lease that is over before the first beat.
      {1000000, 1000000},  // As long as the interval.
      {0, 0},
      {UINT64_MAX, UINT64_MAX},
  };
  RawPeer other({"other", -1, {}});
  for (const auto& [interval, lease] : terms) {
    Handshake handshake;
    handshake.change = [interval = interval, lease = lease](sinew::proto::Hello& hello) {
      hello.set_beat_interval_us(interval);
      hello.set_lease_us(lease);
    };
    const absl::Status refused = other.connect(address(), handshake);
    EXPECT_EQ(other.refused_as(), sinew::proto::NOT_ALLOWED) << interval << " " << lease;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("give all workers of a job similar"));
  }
}

TEST_F(LinkLies, HellosThatAreNone) {
  RawPeer other({"other", -1, {}});
  const std::vector<std::pair<sinew::proto::Refusal, std::function<void(sinew::proto::Hello&)>>>
      cases = {
          {sinew::proto::OTHER_PROTOCOL, [](auto& hello) { hello.set_protocol(1); }},
          {sinew::proto::OTHER_JOB, [](auto& hello) { hello.set_job("another"); }},
          {sinew::proto::NOT_ALLOWED, [](auto& hello) { hello.mutable_worker()->set_name(""); }},
          {sinew::proto::NOT_ALLOWED,
           [](auto& hello) { hello.mutable_worker()->set_name(std::string(1000, 'x')); }},
          {sinew::proto::NOT_ALLOWED,
           [](auto& hello) { hello.mutable_worker()->set_incarnation(0); }},
          {sinew::proto::OTHER_INCARNATION,
           [](auto& hello) { hello.mutable_expected()->set_incarnation(1); }},
          {sinew::proto::WHO_ANSWERS, [](auto& hello) { hello.clear_expected(); }},
          {sinew::proto::DUPLICATE, [](auto& hello) { hello.set_attempt(0); }},
      };
  for (const auto& [refusal, change] : cases) {
    Handshake handshake;
    handshake.change = change;
    const absl::Status refused = other.connect(address(), handshake);
    EXPECT_FALSE(refused.ok());
    EXPECT_EQ(other.refused_as(), refusal) << refused;
  }
  Handshake ranges;
  ranges.change = [](sinew::proto::Hello& hello) { hello.add_received_calls(1); };
  EXPECT_FALSE(other.connect(address(), ranges).ok());
  // None of them has made the link somebody else's.
  EXPECT_TRUE(other.connect(address()).ok());
}

// ---- What is kept for a peer.

TEST_F(LinkLies, ControlCallsWhoseAnswersNobodyTakes) {
  using sinew::internal::CallLink;
  constexpr auto kMost = static_cast<std::size_t>(CallLink::kMaxControlFrames);
  liar_.fall_silent();
  std::uint64_t id = 1000;
  for (std::size_t i = 0; i < kMost + 1000; ++i) liar_.send(FrameKind::kControl, list_call(++id));
  EXPECT_TRUE(liar_.wait_receipts());
  EXPECT_TRUE(eventually([&] { return liar_.heard().size() >= kMost; }));
  // Others are served, and after what came before them.
  RawPeer other({"other", -1, {}});
  ASSERT_TRUE(other.connect(address()).ok());
  EXPECT_TRUE(other.control_call("sinew.worker.heard").ok());
  EXPECT_EQ(worker(0).peer(1).call<&testapp::echo>("small"), "small");
  EXPECT_EQ(liar_.heard().size(), kMost);
  EXPECT_FALSE(liar_.is_down());
}

TEST_F(LinkLies, ACallWaitsNoLongerThanItsDeadlineUntilItsCallerIsAMember) {
  sinew::proto::Envelope call;
  call.mutable_call()->set_id(1000);
  call.mutable_call()->set_method("testapp::add");
  liar_.send(FrameKind::kRequest, call,
             [](LinkHeader& header) { header.time_left = std::chrono::milliseconds(100); });
  call.mutable_call()->set_id(1001);
  call.mutable_call()->set_method("sinew.member.lost");
  liar_.send(FrameKind::kControl, call,
             [](LinkHeader& header) { header.time_left = std::chrono::milliseconds(100); });
  for (const std::uint64_t id : {1000, 1001}) {
    const auto reply = liar_.reply(id);
    ASSERT_TRUE(reply.has_value()) << id;
    EXPECT_EQ(reply->error().code(), static_cast<int>(sinew::ErrorCode::kUnavailable));
    EXPECT_THAT(reply->error().message(), HasSubstr("is not on the list of members"));
  }
  expect_heard();
}

TEST_F(LinkLies, ACallThatWaitedForAMembershipHasItsRank) {
  const std::uint64_t id = liar_.call("lies::rank_of_caller");
  EXPECT_TRUE(liar_.wait_receipts());
  const auto link = sinew::WorkerAccess::core(worker(1))->links().table().find(liar_.claims());
  ASSERT_NE(link.user, nullptr);
  static_cast<sinew::internal::CallLink&>(*link.user).on_member(7);
  const auto reply = liar_.reply(id);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->value().integer(), 7) << reply->ShortDebugString();
}

// Read only when a thread is there to serve them, beside calls that can be.
TEST_F(LinkLies, RequestsOfAMemberThatAreNoCallsAreAnswered) {
  expect_heard();
  const auto link = sinew::WorkerAccess::core(worker(1))->links().table().find(liar_.claims());
  ASSERT_NE(link.user, nullptr);
  static_cast<sinew::internal::CallLink&>(*link.user).on_member(7);
  sinew::proto::Envelope envelope;
  envelope.mutable_note()->set_layer("rref");
  liar_.send(FrameKind::kRequest, envelope, [](LinkHeader& header) { header.subject = 1001; });
  envelope.mutable_call()->set_id(5);
  envelope.mutable_call()->set_method("lies::rank_of_caller");
  liar_.send(FrameKind::kRequest, envelope, [](LinkHeader& header) { header.subject = 1002; });
  LinkHeader header;
  header.kind = FrameKind::kRequest;
  for (const std::string& bytes : {std::string(100, '\xff'), std::string()}) {
    header.number = header.subject = bytes.empty() ? 1003 : 1004;
    liar_.send_bytes(Lane::kCalls, sinew::internal::write_header(header), bytes);
  }
  const std::uint64_t good = liar_.call("lies::rank_of_caller");
  for (const std::uint64_t id : {1001, 1002, 1003, 1004}) {
    const auto reply = liar_.reply(id);
    ASSERT_TRUE(reply.has_value()) << id;
    EXPECT_EQ(reply->error().code(), static_cast<int>(sinew::ErrorCode::kInvalidArgument)) << id;
    EXPECT_EQ(reply->error().execution(), sinew::proto::DID_NOT_RUN) << id;
  }
  EXPECT_EQ(liar_.reply(good)->value().integer(), 7);
  expect_heard();
}

// A cancel and its call come on two lanes, which two threads may read: the link has handed the call
// over, but nobody knows it yet. Here its cancel names the number of one that has come.
TEST_F(LinkLies, ACancelOfWhatNobodyKnowsYetIsRemembered) {
  const auto send_call = [this](std::uint64_t id) {
    sinew::proto::Envelope call;
    call.mutable_call()->set_id(id);
    call.mutable_call()->set_method("testapp::add");
    liar_.send(FrameKind::kRequest, call,
               [](LinkHeader& header) { header.time_left = std::chrono::milliseconds(100); });
  };
  send_call(1000);  // number 1
  EXPECT_TRUE(liar_.wait_receipts());
  sinew::proto::Envelope cancel;
  cancel.mutable_cancel()->set_id(1001);
  cancel.mutable_cancel()->set_number(1);
  liar_.send(FrameKind::kControl, cancel);
  expect_heard();  // what comes behind the cancel
  send_call(1001);
  send_call(1002);
  // They wait for a membership, and are refused when their time is over; nobody waits for 1001.
  for (const std::uint64_t id : {1000, 1002}) EXPECT_TRUE(liar_.reply(id).has_value()) << id;
  expect_heard();
  for (const sinew::proto::Envelope& envelope : liar_.heard()) {
    EXPECT_NE(envelope.reply().id(), 1001u);
  }
}

sinew::proto::Envelope call_of(std::uint64_t id, std::size_t bytes) {
  sinew::proto::Envelope envelope;
  envelope.mutable_call()->set_id(id);
  envelope.mutable_call()->set_method("testapp::add");
  envelope.mutable_call()->add_arguments()->set_binary(std::string(bytes, 'x'));
  return envelope;
}

std::string refusal_of(const std::optional<sinew::proto::Reply>& reply) {
  if (!reply.has_value()) return "no answer";
  return reply->error().code() == static_cast<int>(sinew::ErrorCode::kResourceExhausted)
             ? reply->error().message()
             : "another error: " + reply->error().message();
}

TEST_F(LinkLies, WhoIsNoMemberHasALittleRoom) {
  constexpr std::size_t kPart = sinew::internal::LinkTable::kMaxGuestBytes / 4;
  const auto in_time = [](LinkHeader& header) { header.time_left = std::chrono::seconds(2); };
  for (const std::uint64_t id : {1000, 1001, 1002}) {
    liar_.send(FrameKind::kRequest, call_of(id, kPart), in_time);
  }
  liar_.send(FrameKind::kRequest, call_of(1003, 2 * kPart), in_time);
  EXPECT_THAT(refusal_of(liar_.reply(1003)),
              AllOf(HasSubstr("'liar' is no member of the job"), HasSubstr("4194304 bytes")));
  // Nor in many small parts, which come without being announced.
  for (std::uint64_t id = 2000; id < 2100; ++id) {
    liar_.send(FrameKind::kRequest, call_of(id, kPart / 50), in_time);
  }
  EXPECT_THAT(refusal_of(liar_.reply(2099)), HasSubstr("'liar' is no member of the job"));
  expect_heard();
  // Its room is free again when what lay there is refused.
  for (const std::uint64_t id : {1000, 1001, 1002}) {
    EXPECT_THAT(refusal_of(liar_.reply(id)), HasSubstr("another error"));
  }
  liar_.send(FrameKind::kRequest, call_of(3000, 3 * kPart), in_time);
  EXPECT_THAT(refusal_of(liar_.reply(3000)), HasSubstr("another error"));
  expect_heard();
}

// The link ends in the middle of a packet, and the rest of it must not keep that alive.
TEST_F(LinkLies, WhatAStrangerSaysTooMuchGoesWithItsLink) {
  sinew::proto::Envelope note;
  note.mutable_note()->set_layer("rref");
  const auto frames = sinew::internal::CallLink::kMaxHeldFrames;
  const auto find = [this] {
    return sinew::WorkerAccess::core(worker(1))->links().table().find(liar_.claims());
  };
  EXPECT_TRUE(liar_.control_call("sinew.worker.heard").ok());
  std::weak_ptr<sinew::internal::LinkUser> link = find().user;
  std::vector<sinew::internal::Inbound> packet(frames + 100);
  for (std::size_t i = 0; i < packet.size(); ++i) {
    packet[i].header.kind = FrameKind::kControl;
    packet[i].header.number = 1000 + i;
    packet[i].envelope = note.SerializeAsString();
  }
  link.lock()->on_frames(std::move(packet));
  EXPECT_TRUE(liar_.wait_down());
  EXPECT_TRUE(eventually([&] { return link.expired(); }));
}

/// A worker alone, whose lease is as short as CallLink::kMinHeldTime lets it count.
TEST(LinkLiesToOneWorker, WhatAGuestHasSentWaitsForALease) {
  sinew::testing::ClusterOptions options;
  options.names = sinew::testing::worker_names(1);
  options.transport = sinew::testing::ClusterTransport::kGrpc;
  options.methods = testapp::methods();
  options.tweak = [](int, sinew::WorkerOptions& worker) {
    worker.lease = sinew::internal::CallLink::kMinHeldTime;
  };
  const sinew::testing::Cluster cluster(std::move(options));
  const std::string address = cluster.worker(0).address();
  RawPeer caller({"caller", -1, {}});
  RawPeer teller({"teller", -1, {}});
  ASSERT_TRUE(caller.connect(address).ok());
  ASSERT_TRUE(teller.connect(address).ok());
  const std::uint64_t id = caller.call("testapp::add");
  teller.send_note("rref", "anything");
  const auto reply = caller.reply(id);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->error().code(), static_cast<int>(sinew::ErrorCode::kUnavailable));
  EXPECT_FALSE(caller.is_down());
  EXPECT_TRUE(caller.control_call("sinew.worker.heard").ok());
  // A note that is not heard is missing for ever: the link ends with it.
  EXPECT_TRUE(teller.wait_down());
  EXPECT_TRUE(teller.wait_ended(address));
}

// Through a Unix socket they are this user's own, and may take all of it; over TCP one address.
TEST(LinkLiesToOneWorker, StrangersHaveARoomTogetherAndOneAddressAShareOfIt) {
  using sinew::internal::LinkTable;
  constexpr std::size_t kPart = LinkTable::kMaxGuestBytes / 4 * 3;
  for (const bool same_host : {true, false}) {
    SCOPED_TRACE(same_host);
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(1);
    options.transport = sinew::testing::ClusterTransport::kGrpc;
    options.methods = testapp::methods();
    options.tweak = [same_host](int, sinew::WorkerOptions& worker) {
      worker.same_host = same_host;
    };
    const sinew::testing::Cluster cluster(std::move(options));
    const std::uint64_t fit =
        (same_host ? LinkTable::kMaxGuestBytesInAll : LinkTable::kMaxGuestBytesOfOrigin) / kPart;
    std::vector<std::unique_ptr<RawPeer>> strangers;
    for (std::uint64_t i = 0; i < fit + 3; ++i) {
      strangers.push_back(
          std::make_unique<RawPeer>(sinew::WorkerInfo{"stranger" + std::to_string(i), -1, {}}));
      ASSERT_TRUE(strangers.back()->connect(cluster.worker(0).address()).ok());
      strangers.back()->send(FrameKind::kRequest, call_of(1, kPart), [](LinkHeader& header) {
        header.time_left = std::chrono::seconds(5);
      });
      EXPECT_TRUE(strangers.back()->wait_receipts());
    }
    std::uint64_t held = 0;
    for (const auto& stranger : strangers) {
      if (refusal_of(stranger->reply(1)).find("another error") != std::string::npos) ++held;
    }
    // On a slow host some of the first are over by the time that the last ones come.
    EXPECT_GE(held, fit / 2);
    EXPECT_LT(held, strangers.size());
  }
}

}  // namespace
