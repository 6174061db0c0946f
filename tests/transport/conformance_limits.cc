// Limits, headers, and what the layer above is asked before payloads cost memory.

#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "sinew/tests/transport/station.h"

namespace sinew::internal {
namespace {

using testing::HasSubstr;

Frame with_header(std::string header, std::string envelope = "",
                  std::vector<absl::Cord> payloads = {}) {
  Frame frame = make_frame(std::move(envelope), std::move(payloads));
  frame.header = std::move(header);
  return frame;
}

constexpr std::size_t kLarge = std::size_t{3} << 20U;

}  // namespace

TEST_P(TransportConformance, HeadersTravelWithTheirFrames) {
  Connected pair(*fixture_);
  ASSERT_TRUE(pair.ok());
  const absl::Cord large(pattern(kLarge, 3));
  const std::string longest = pattern(kMaxHeaderBytes, 4);
  for (const Lane lane : {Lane::kCalls, Lane::kControl}) {
    for (const auto& [from, to] :
         {std::pair(pair.from_opener, pair.acceptor), std::pair(pair.from_acceptor, pair.opener)}) {
      ASSERT_TRUE(from->send(lane, with_header("alone")).ok());
      ASSERT_TRUE(to->wait_frames(lane, 1));
      ASSERT_TRUE(from->send(lane, with_header("small", "e", {absl::Cord("p")})).ok());
      ASSERT_TRUE(to->wait_frames(lane, 2));
      ASSERT_TRUE(from->send(lane, with_header("large", "e", {large, large})).ok());
      ASSERT_TRUE(to->wait_frames(lane, 3));
      ASSERT_TRUE(from->send(lane, with_header(longest)).ok());
      ASSERT_TRUE(to->wait_frames(lane, 4));
      const std::vector<Frame> frames = to->take_frames(lane);
      EXPECT_EQ(frames[0].header, "alone");
      EXPECT_EQ(frames[0].envelope, "");
      EXPECT_TRUE(frames[0].payloads.empty());
      EXPECT_EQ(frames[1].header, "small");
      EXPECT_EQ(frames[1].envelope, "e");
      EXPECT_EQ(frames[2].header, "large");
      EXPECT_TRUE(frames[2].payloads.at(1) == large);
      EXPECT_TRUE(frames[3].header == longest);
    }
  }
}

// Requests and replies of both ends share the lanes.
TEST_P(TransportConformance, BothEndsSendOnAllLanes) {
  constexpr std::size_t kFrames = 300;
  Connected pair(*fixture_);
  ASSERT_TRUE(pair.ok());
  const absl::Cord large(pattern(kLarge / 8, 5));
  std::vector<std::thread> senders;
  for (const auto& connection : {pair.from_opener, pair.from_acceptor}) {
    for (const Lane lane : {Lane::kCalls, Lane::kControl}) {
      senders.emplace_back([&large, connection, lane] {
        for (std::size_t i = 0; i < kFrames; ++i) {
          std::vector<absl::Cord> payloads;
          if (i % 10 == 0) payloads.push_back(large);
          EXPECT_TRUE(connection->send(lane, with_header(absl::StrCat(i), "", payloads)).ok());
        }
      });
    }
  }
  for (std::thread& sender : senders) sender.join();
  for (const auto& receiver : {pair.opener, pair.acceptor}) {
    for (const Lane lane : {Lane::kCalls, Lane::kControl}) {
      ASSERT_TRUE(receiver->wait_frames(lane, kFrames));
      std::vector<bool> seen(kFrames);
      for (const Frame& frame : receiver->take_frames(lane)) {
        const std::size_t number = std::stoul(std::string(absl::string_view(frame.header)));
        ASSERT_LT(number, kFrames);
        EXPECT_FALSE(seen[number]) << "twice";
        seen[number] = true;
        EXPECT_EQ(frame.payloads.size(), number % 10 == 0 ? 1U : 0U);
      }
    }
  }
}

TEST_P(TransportConformance, LargeFramesAreAnnouncedFirst) {
  Connected pair(*fixture_);
  ASSERT_TRUE(pair.ok());
  const absl::Cord large(pattern(kLarge, 6));
  ASSERT_TRUE(pair.from_opener->send(Lane::kCalls, with_header("small", "e")).ok());
  ASSERT_TRUE(
      pair.from_opener->send(Lane::kCalls, with_header("one", "e", {large, absl::Cord("x")})).ok());
  ASSERT_TRUE(pair.from_opener->send(Lane::kControl, with_header("two", "", {large})).ok());
  ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, 2));
  ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kControl, 1));
  std::vector<RecordingHandler::Announced> announced = pair.acceptor->announced();
  ASSERT_EQ(announced.size(), 2U);
  if (announced[0].header == "two") std::swap(announced[0], announced[1]);
  EXPECT_EQ(announced[0].header, "one");
  EXPECT_EQ(announced[0].lane, Lane::kCalls);
  EXPECT_EQ(announced[0].size_bytes, kLarge + 5);
  EXPECT_EQ(announced[0].payloads, 2U);
  EXPECT_EQ(announced[1].header, "two");
  EXPECT_EQ(announced[1].lane, Lane::kControl);
}

TEST_P(TransportConformance, WhatIsNotAdmittedEndsTheConnection) {
  Station a(*fixture_);
  Station b(*fixture_);
  b.acceptor->prepare = [](RecordingHandler& handler) {
    handler.set_announced_hook([](Lane, absl::string_view header, std::uint64_t) {
      return header == "good" ? absl::OkStatus()
                              : absl::InvalidArgumentError("more than the window has room for");
    });
  };
  a.start();
  b.start();
  const Pair pair = open(a, b);
  ASSERT_TRUE(pair.ok());
  const absl::Cord large(pattern(kLarge, 7));
  ASSERT_TRUE(pair.from_opener->send(Lane::kCalls, with_header("good", "", {large})).ok());
  ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, 1));
  ASSERT_TRUE(pair.from_opener->send(Lane::kCalls, with_header("bad", "", {large})).ok());
  ASSERT_TRUE(pair.acceptor->wait_down());
  EXPECT_TRUE(absl::IsInvalidArgument(pair.acceptor->reason())) << pair.acceptor->reason();
  ASSERT_TRUE(pair.opener->wait_down());
  EXPECT_TRUE(absl::IsUnavailable(pair.opener->reason())) << pair.opener->reason();
  EXPECT_THAT(std::string(pair.opener->reason().message()),
              HasSubstr("more than the window has room for"));
  EXPECT_EQ(pair.acceptor->frame_count(Lane::kCalls), 1U);
}

TEST_P(TransportConformance, WhatThereIsNoRoomForIsLost) {
  Station a(*fixture_);
  Station b(*fixture_);
  b.acceptor->prepare = [](RecordingHandler& handler) {
    handler.set_announced_hook([](Lane, absl::string_view header, std::uint64_t) {
      return header == "good" ? absl::OkStatus() : absl::ResourceExhaustedError("not from you");
    });
  };
  a.start();
  b.start();
  const Pair pair = open(a, b);
  ASSERT_TRUE(pair.ok());
  const absl::Cord large(pattern(kLarge, 7));
  ASSERT_TRUE(pair.from_opener->send(Lane::kCalls, with_header("bad", "e", {large, large})).ok());
  ASSERT_TRUE(pair.from_opener->send(Lane::kCalls, with_header("good", "", {large})).ok());
  ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, 1));
  const std::vector<RecordingHandler::Lost> lost = pair.acceptor->wait_lost();
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].header, "bad");
  EXPECT_EQ(lost[0].size_bytes, 2 * kLarge + 4);
  EXPECT_EQ(lost[0].reason.message(), "not from you");
  EXPECT_EQ(pair.acceptor->frame_count(Lane::kCalls), 1U);
  EXPECT_FALSE(pair.acceptor->is_down());
}

TEST_P(TransportConformance, FramesMayOutliveConnectionAndTransport) {
  std::vector<Frame> kept;
  {
    const Connected pair(*fixture_);
    ASSERT_TRUE(pair.ok());
    ASSERT_TRUE(pair.from_opener->send(Lane::kCalls, make_frame("x", {absl::Cord("abc")})).ok());
    ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, 1));
    kept = pair.acceptor->take_frames(Lane::kCalls);
  }
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].payloads.at(0), "abc");
}

TEST_P(TransportConformance, SendRefusesFramesOverTheLimits) {
  Transport::Limits strict;
  strict.max_frame_bytes = std::size_t{1} << 20U;
  strict.max_payloads = 10;
  Connected pair(*fixture_, strict);
  ASSERT_TRUE(pair.ok());
  const std::vector<absl::Cord> many(11, absl::Cord("x"));
  const std::vector<Frame> bad = {
      make_frame("", many),
      make_frame("", {absl::Cord(pattern(std::size_t{2} << 20U, 5))}),
      make_frame(pattern(strict.max_frame_bytes + 1, 5)),
      with_header(pattern(kMaxHeaderBytes + 1, 5)),
  };
  for (const Lane lane : {Lane::kCalls, Lane::kControl}) {
    for (const Frame& frame : bad) {
      EXPECT_TRUE(absl::IsInvalidArgument(pair.from_opener->send(lane, frame)));
    }
  }
  // And the connection stays.
  ASSERT_TRUE(pair.from_opener->send(Lane::kCalls, make_frame("good")).ok());
  ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, 1));
}

TEST_P(TransportConformance, ReceivingRefusesFramesOverTheLimits) {
  Transport::Limits strict;
  strict.max_frame_bytes = std::size_t{1} << 20U;
  strict.max_payloads = 10;
  const std::vector<absl::Cord> many(11, absl::Cord("x"));
  const std::vector<absl::Cord> large = {absl::Cord(pattern(std::size_t{2} << 20U, 5))};
  for (const std::vector<absl::Cord>& payloads : {many, large}) {
    Station a(*fixture_);
    Station b(*fixture_, strict);
    a.start();
    b.start();
    const Pair pair = open(a, b);
    ASSERT_TRUE(pair.ok());
    // The sender does not know the receiver's limits: the connection goes down.
    const absl::Status sent = pair.from_opener->send(Lane::kCalls, make_frame("bad", payloads));
    EXPECT_TRUE(sent.ok() || absl::IsUnavailable(sent)) << sent;
    EXPECT_TRUE(pair.acceptor->wait_down());
    EXPECT_TRUE(pair.opener->wait_down());
    EXPECT_EQ(pair.acceptor->frame_count(Lane::kCalls), 0U);
  }
}

}  // namespace sinew::internal
