// A link's shell over a transport that the test drives by hand: what its connections say, and when.

#include "sinew/rpc/link/link_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/link/dial_order.h"
#include "sinew/rpc/link/header_codec.h"
#include "sinew/rpc/link/identity_codec.h"
#include "sinew/rpc/link/link_codec.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/rpc/hand_link.h"
#include "sinew/tests/transport/happening.h"

namespace sinew::internal {
namespace {

using sinew::testing::eventually;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(LinkRunnerTest, WhoDialsComesUp) {
  runner_->connect();
  const HandTransport::Attempt attempt = transport_.take();
  EXPECT_EQ(attempt.address, "there");
  const auto connection = accept(attempt);
  EXPECT_TRUE(connection->closed().ok()) << connection->closed();
  EXPECT_THAT(user_->noted(), ElementsAre("up"));
}

TEST_F(LinkRunnerTest, WhoDialsLooksAtTheLeaseInTheAnswer) {
  const LeaseTerms terms[] = {{std::chrono::seconds(1), std::chrono::seconds(15)},
                              {std::chrono::seconds(0), std::chrono::hours(1)},
                              {std::chrono::hours(1), std::chrono::hours(1)}};
  for (const LeaseTerms& theirs : terms) {
    runner_->connect();
    const HandTransport::Attempt attempt = take_later();
    const auto connection = accept(attempt, [&theirs](LinkHello& hello) { hello.terms = theirs; });
    EXPECT_THAT(std::string(connection->closed().message()),
                HasSubstr("give all workers of a job similar"));
    EXPECT_FALSE(runner_->is_up());
    attempt.handler->on_down(connection, absl::CancelledError("as it was wished"));
    made_.pop_back();
  }
  EXPECT_THAT(user_->noted(), IsEmpty());
}

TEST_F(LinkRunnerTest, WhoIsNoMemberHasALittleRoom) {
  constexpr std::size_t kMost = LinkTable::kMaxGuestBytes;
  const auto announce = [](const Offered& by, std::uint64_t number, std::size_t bytes) {
    LinkHeader header;
    header.kind = FrameKind::kRequest;
    header.number = number;
    return by.handler->on_announced(by.connection, Lane::kCalls, write_header(header), bytes, 1);
  };
  peer_is_member_ = false;
  const Offered guest = offer();
  EXPECT_FALSE(guest.handler->may_send_ahead());
  EXPECT_TRUE(announce(guest, 1, kMost / 2).ok());
  const absl::Status too_much = announce(guest, 2, kMost / 2);
  EXPECT_TRUE(absl::IsResourceExhausted(too_much)) << too_much;
  EXPECT_THAT(std::string(too_much.message()), HasSubstr("worker 'peer' is no member of the job"));
  // What was announced on a connection that breaks takes no room any more.
  guest.handler->on_down(guest.connection, absl::UnavailableError("it broke"));
  made_.clear();
  const Offered again = offer();
  EXPECT_TRUE(announce(again, 1, kMost / 2).ok());
  peer_is_member_ = true;
  EXPECT_TRUE(announce(again, 2, kMost * 2).ok());
  EXPECT_TRUE(again.handler->may_send_ahead());
}

// Whoever has seen one, of another attempt or for somebody else, cannot use it again.
TEST_F(LinkRunnerTest, OnlyTheSignedRefusalOfItsAttemptEndsALink) {
  const auto refuse_as = [this](const SelfDescription& by,
                                const std::function<void(proto::Hello&)>& change) {
    runner_->connect();
    const HandTransport::Attempt attempt = take_later();
    proto::Hello said;
    EXPECT_TRUE(said.ParseFromString(attempt.hello));
    if (change) change(said);
    attempt.handler->on_down(nullptr, refuse(by, Refusal::kLostHere, "it is lost", said));
  };
  refuse_as(peer(), [](proto::Hello& said) { said.set_attempt(said.attempt() + 1); });
  refuse_as(peer(), [](proto::Hello& said) { said.mutable_worker()->set_incarnation(77); });
  SelfDescription stranger = peer();
  stranger.key = WorkerKey::draw();
  refuse_as(stranger, {});
  stranger.worker.incarnation = stranger.key->incarnation();
  refuse_as(stranger, {});
  EXPECT_FALSE(runner_->ended());
  refuse_as(peer(), {});
  EXPECT_TRUE(runner_->ended());
}

// It may answer when it has left the list.
TEST_F(LinkRunnerTest, AMemberStaysOneUntilItsLinkEnds) {
  const Offered member = offer();
  peer_is_member_ = false;
  EXPECT_TRUE(member.handler->may_send_ahead());
}

// A transport that shuts down tells nothing of them.
TEST_F(LinkRunnerTest, AnAttemptThatTheEndOfTheLinkOvertakesIsNotKept) {
  transport_.on_connect = [this] { table_.close(absl::CancelledError("the worker shuts down")); };
  runner_->connect();
  const std::weak_ptr<ConnectionHandler> handler = transport_.take().handler;
  settle();
  EXPECT_TRUE(handler.expired());
}

// Attempts that end, well or not, let the next ones begin.
TEST_F(LinkRunnerTest, AFewDialAtATime) {
  runner_->connect();
  std::vector<HandTransport::Attempt> attempts = {transport_.take()};
  const std::uint64_t others = DialOrder::kAtOnce + 1;
  for (std::uint64_t i = 0; i < others; ++i) {
    const WorkerInfo other{absl::StrCat("other_", i), -1, {100 + i}};
    table_.find_or_make(other, "elsewhere")->runner->connect();
  }
  while (attempts.size() < DialOrder::kAtOnce) attempts.push_back(transport_.take());
  settle();
  EXPECT_EQ(transport_.attempts(), 0u);
  accept(attempts[0]);
  settle();
  EXPECT_EQ(transport_.attempts(), 1u);
  attempts[1].handler->on_down(nullptr, absl::UnavailableError("out of order"));
  settle();
  EXPECT_EQ(transport_.attempts(), 2u);
  for (std::size_t i = 2; i < attempts.size(); ++i) {
    attempts[i].handler->on_down(nullptr, absl::CancelledError("the test is over"));
  }
}

// It does not dial those that are to dial it, and notes that they do.
TEST_F(LinkRunnerTest, WhoComesBeforeItsTurnIsNotDialled) {
  const std::uint64_t self = kSelf.incarnation.value;
  for (std::uint64_t i = 1; i <= DialOrder::kAtOnce; ++i) {
    const WorkerInfo other{absl::StrCat("other_", i), -1, {self - i}};
    table_.find_or_make(other, "elsewhere")->runner->connect();
  }
  // One more than those that may dial at once.
  const auto ninth = table_.find_or_make({"ninth", -1, {2}}, "elsewhere")->runner;
  ninth->connect();
  const HandTransport::Attempt attempt = transport_.take();
  ninth->close(absl::CancelledError("it is wanted no more"));
  attempt.handler->on_down(nullptr, absl::CancelledError("as it was wished"));
  clock_.advance(DialOrder::kQuiet - std::chrono::milliseconds(1));
  offer();
  clock_.advance(DialOrder::kQuiet - std::chrono::milliseconds(1));
  settle();
  EXPECT_EQ(transport_.attempts(), 0u);
  clock_.advance(std::chrono::milliseconds(1));
  settle();
  EXPECT_EQ(transport_.attempts(), DialOrder::kAtOnce);
}

// The attempt is posted; the peer's connection comes up before its turn.
TEST_F(LinkRunnerTest, AnAttemptThatIsLateLeavesTheConnectionThatIsUp) {
  Happening go;
  executor_.post([&go] { go.wait(); });
  runner_->connect();
  const Offered offered = offer();
  EXPECT_TRUE(runner_->is_up());
  go.notify();
  Happening done;
  executor_.post([&done] { done.notify(); });
  EXPECT_TRUE(done.wait());
  EXPECT_EQ(transport_.attempts(), 0u);
  EXPECT_TRUE(runner_->is_up());
  EXPECT_TRUE(offered.connection->closed().ok()) << offered.connection->closed();
}

TEST_F(LinkRunnerTest, WhatComesInOnePacketWithAGoodbyeCounts) {
  const Offered offered = offer();
  LinkHeader first;
  first.kind = FrameKind::kReply;
  first.number = 1;
  LinkHeader second = first;
  second.number = 2;
  LinkHeader goodbye;
  goodbye.is_goodbye = true;
  hear(*offered.handler, offered.connection, {{first, "1"}, {second, "2"}, {goodbye, ""}});
  EXPECT_THAT(user_->noted(), ElementsAre("up", "frame 1", "frame 2", "end"));
  EXPECT_TRUE(runner_->ended());
}

TEST_F(LinkRunnerTest, FramesLeaveInTheOrderOfTheirNumbers) {
  const Offered offered = offer();
  Happening first_is_leaving;
  Happening others_have_sent;
  offered.connection->on_send = [&](const LinkHeader& header) {
    if (header.number != 1) return;
    first_is_leaving.notify();
    others_have_sent.wait();
  };
  std::thread slow([this] { send(); });
  ASSERT_TRUE(first_is_leaving.wait());
  std::thread other([this] { send(); });
  other.join();
  send();
  others_have_sent.notify();
  slow.join();
  EXPECT_THAT(offered.connection->numbers(), ElementsAre(1, 2, 3));
}

// One thread still has some of the connection that broke in its hands.
TEST_F(LinkRunnerTest, ControlFramesKeepTheirOrderOverAChangeOfConnections) {
  const Offered first = offer();
  Happening one_is_handed_over;
  Happening others_have_come;
  user_->on_frame = [&](const Inbound& frame) {
    if (frame.envelope != "1") return;
    one_is_handed_over.notify();
    others_have_come.wait();
  };
  const auto control = [](std::uint64_t number) {
    LinkHeader header;
    header.kind = FrameKind::kControl;
    header.number = number;
    return std::make_pair(header, absl::StrCat(number));
  };
  std::thread slow([&] { hear(*first.handler, first.connection, {control(1)}); });
  ASSERT_TRUE(one_is_handed_over.wait());
  first.handler->on_down(first.connection, absl::UnavailableError("it broke"));
  made_.clear();
  const Offered second = offer();
  hear(*second.handler, second.connection, {control(2), control(3)});
  others_have_come.notify();
  slow.join();
  EXPECT_THAT(user_->noted(), ElementsAre("up", "up", "frame 1", "frame 2", "frame 3"));
}

TEST_F(LinkRunnerTest, AFrameThatThereIsNoMemoryForLeavesWithTheNextConnection) {
  const Offered first = offer();
  first.connection->on_send = [](const LinkHeader&) { throw std::bad_alloc(); };
  send();
  EXPECT_EQ(first.connection->closed().code(), absl::StatusCode::kResourceExhausted);
  first.handler->on_down(first.connection, first.connection->closed());
  made_.clear();
  const Offered second = offer();
  send();
  EXPECT_THAT(second.connection->numbers(), ElementsAre(1, 2));
}

// More than one header has room for: the rest is due at once.
TEST_F(LinkRunnerTest, ManyReceiptsLeaveInSeveralFrames) {
  const Offered offered = offer();
  std::vector<std::pair<LinkHeader, std::string>> said;
  for (std::uint64_t i = 0; i < 2 * FrameNumbers::kMaxReported; ++i) {
    LinkHeader reply;
    reply.kind = FrameKind::kReply;
    reply.number = 2 * i + 1;
    said.emplace_back(reply, "");
  }
  hear(*offered.handler, offered.connection, said);
  send();
  clock_.advance(std::chrono::minutes(1));
  EXPECT_EQ(offered.connection->receipts(), said.size());
}

TEST_F(LinkRunnerTest, LittleRoomIsToldWithTheNextBeat) {
  const Offered offered = offer();
  LinkHeader request;
  request.kind = FrameKind::kRequest;
  request.number = 1;
  hear(*offered.handler, offered.connection, {{request, "request"}});
  runner_->return_room(7);
  runner_->answer_beat(1);
  EXPECT_EQ(offered.connection->returned_frames(), 1u);
}

// A handler's future may be forgotten when the worker is gone.
TEST_F(LinkRunnerTest, RoomMayComeBackAfterTheTable) {
  auto table = std::make_unique<LinkTable>(options(), executor_, clock_, clock_);
  table->start(transport_);
  const std::shared_ptr<LinkRunner> runner = table->find_or_make(kPeer, "there")->runner;
  table->close(absl::CancelledError("the worker ends"));
  table.reset();
  for (int i = 0; i < 1000; ++i) runner->return_room(1000);
  EXPECT_TRUE(runner->ended());
}

TEST_F(LinkRunnerTest, OnlyWhereItWasReachedCountsAsItsAddress) {
  const Offered offered = offer();
  EXPECT_EQ(runner_->address(), "there");
  EXPECT_FALSE(runner_->is_reached_at("there")) << "so it says, and nobody has tried";
  runner_->close(absl::CancelledError("once more"));

  LinkTable::Link other = *table_.find_or_make(kPeer, "there");
  other.runner->connect();
  accept(transport_.take());
  EXPECT_TRUE(other.runner->is_reached_at("there"));
  EXPECT_FALSE(other.runner->is_reached_at("elsewhere"));
}

TEST_F(LinkRunnerTest, WhoSaysToHaveWhatItHasNotTakenLosesItsConnection) {
  const Offered offered = offer();
  send();
  EXPECT_TRUE(offered.connection->closed().ok());
  offered.connection->kept = std::uint64_t{1} << 40;
  send();
  EXPECT_TRUE(absl::IsResourceExhausted(offered.connection->closed()));
  EXPECT_THAT(std::string(offered.connection->closed().message()), HasSubstr("worker 'peer'"));
  EXPECT_FALSE(runner_->ended());
}

// A call is told; what workers say to run the job is sent again.
TEST_F(LinkRunnerTest, WhatThereIsNoMemoryForHasArrivedWithoutItsContent) {
  const Offered offered = offer();
  LinkHeader request;
  request.kind = FrameKind::kRequest;
  request.number = 1;
  const HeaderBytes header = write_header(request);
  EXPECT_TRUE(offered.handler
                  ->on_announced(offered.connection, Lane::kCalls, header, 5000 + header.size(), 1)
                  .ok());
  offered.handler->on_lost(offered.connection, Lane::kCalls, header, 5000 + header.size(), 1,
                           absl::ResourceExhaustedError("no memory"));
  const std::string lost = absl::StrCat("lost ", LinkLanes::room_of(5000, 1));
  EXPECT_THAT(user_->noted(), ElementsAre("up", lost));
  EXPECT_TRUE(offered.connection->closed().ok()) << offered.connection->closed();
  // Its number has arrived.
  hear(*offered.handler, offered.connection, {{request, "again"}});
  EXPECT_THAT(user_->noted(), ElementsAre("up", lost));

  LinkHeader note;
  note.kind = FrameKind::kControl;
  note.number = 1;
  offered.handler->on_lost(offered.connection, Lane::kControl, write_header(note), 5000, 1,
                           absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(offered.connection->closed(), absl::ResourceExhaustedError("no memory"));
  EXPECT_THAT(user_->noted(), ElementsAre("up", lost));
  EXPECT_FALSE(runner_->ended());
}

}  // namespace
}  // namespace sinew::internal
