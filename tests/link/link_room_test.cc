// Rules L3 and L4 of docs/link.md: room.

#include <chrono>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/link/support/lanes_fixture.h"

namespace sinew::internal {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using TimePoint = LinkLanes::TimePoint;
using Delivery = LinkLanes::Delivery;

TEST_F(LinkLanesTest, payloads_take_room_too) {
  up();
  OutgoingFrame many = request();
  many.payloads = 2 * kCost / LinkLanes::kPayloadCostBytes;
  ASSERT_THAT(send(many).writes, SizeIs(1));
  EXPECT_THAT(send(request()).writes, SizeIs(1));
  EXPECT_THAT(send(request()).writes, IsEmpty()) << "they are as large as three others";
}

TEST_F(RoomyLanesTest, no_more_large_frames_are_announced_than_their_sender_may_write) {
  up();
  for (std::uint64_t number = 1; number <= 2 * LinkLanes::kMaxLargeFrames; ++number) {
    ASSERT_TRUE(lanes.announce(incoming(FrameKind::kRequest, number), 1));
  }
  EXPECT_FALSE(lanes.announce(incoming(FrameKind::kRequest, 10000), 1));
}

// L4: receipts for what was never taken must not make a worker keep ever more.
TEST_F(SmallSendWindowTest, what_a_connection_keeps_is_what_has_no_receipt_and_a_little) {
  LinkHello theirs;
  up(theirs);
  ASSERT_THAT(send(reply(1 << 20)).writes, SizeIs(1));
  EXPECT_TRUE(lanes.may_keep(1 << 20));
  EXPECT_TRUE(lanes.may_keep(5 << 20)) << "said to have arrived before it is said to be fetched";
  EXPECT_FALSE(lanes.may_keep(6 << 20));
  hear_receipts(Lane::kCalls, 1, 1);
  EXPECT_TRUE(lanes.may_keep(4 << 20));
  EXPECT_FALSE(lanes.may_keep(5 << 20));
}

TEST_F(LinkLanesTest, requests_are_written_against_room_that_their_handlers_give_back) {
  up();
  for (int i = 0; i < 4; ++i) ASSERT_THAT(send(request()).writes, SizeIs(1));
  EXPECT_THAT(send(request()).writes, IsEmpty());
  EXPECT_THAT(hear_receipts(Lane::kCalls, 1, 4).writes, IsEmpty()) << "a receipt is not room";
  LinkHeader header;
  header.returned_frames = 1;
  header.returned_bytes = kCost;
  EXPECT_THAT(numbers(hear(header)), ElementsAre(5));
}

TEST_F(LinkLanesTest, room_that_comes_free_after_the_hello_is_told) {
  up();
  for (std::uint64_t number = 1; number <= 4; ++number) hear(incoming(FrameKind::kRequest, number));
  lanes.on_down();
  LinkHello own;
  lanes.fill_hello(own);
  EXPECT_EQ(own.returned_frames, 0);
  LinkOutputs outputs;
  for (int i = 0; i < 4; ++i) lanes.return_room(1, LinkLanes::cost(0), now, outputs);
  EXPECT_THAT(outputs.writes, IsEmpty());
  outputs = up();
  ASSERT_THAT(outputs.writes, SizeIs(1));
  EXPECT_EQ(outputs.writes[0].header.returned_frames, 4);
}

TEST_F(LinkLanesTest, more_room_than_was_taken_cannot_be_given_back) {
  up();
  for (int i = 0; i < 5; ++i) send(request());
  LinkHeader header;
  header.returned_frames = 100;
  header.returned_bytes = 100 * kCost;
  EXPECT_THAT(hear(header).writes, IsEmpty());
}

TEST_F(LinkLanesTest, replies_are_written_against_receipts) {
  up();
  for (int i = 0; i < 2; ++i) ASSERT_THAT(send(reply()).writes, SizeIs(1));
  EXPECT_FALSE(lanes.replies_blocked());
  EXPECT_THAT(send(reply()).writes, IsEmpty());
  EXPECT_TRUE(lanes.replies_blocked()) << "so no further handler starts";
  const LinkOutputs outputs = hear_receipts(Lane::kCalls, 1, 1);
  EXPECT_THAT(numbers(outputs), ElementsAre(3));
  EXPECT_TRUE(outputs.room);
  EXPECT_FALSE(lanes.replies_blocked());
}

TEST_F(SmallSendWindowTest, a_peer_with_a_vast_window_has_no_more_kept_here_than_this_end_says) {
  LinkHello boundless;
  boundless.limits.reply_window_bytes = std::uint64_t{1} << 60;
  up(boundless);
  for (int i = 0; i < 4; ++i) ASSERT_THAT(send(reply()).writes, SizeIs(1));
  EXPECT_FALSE(lanes.replies_blocked());
  EXPECT_THAT(send(reply()).writes, SizeIs(1));
  EXPECT_TRUE(lanes.replies_blocked());
  hear_receipts(Lane::kCalls, 1, 1);
  EXPECT_FALSE(lanes.replies_blocked());
}

TEST_F(LinkLanesTest, an_overdue_reply_takes_no_room) {
  up();
  for (int i = 0; i < 2; ++i) send(reply());
  OutgoingFrame overdue = reply();
  overdue.deadline = now + seconds(1);
  send(overdue);
  EXPECT_TRUE(lanes.replies_blocked());
  now += seconds(1);
  LinkOutputs outputs;
  lanes.poll(now, outputs);
  ASSERT_THAT(outputs.ended, SizeIs(1));
  EXPECT_EQ(outputs.ended[0].how, FrameEnd::kNotSent);
  EXPECT_FALSE(lanes.replies_blocked());
}

TEST_F(LinkLanesTest, replies_and_control_frames_pass_requests_without_room) {
  up();
  for (int i = 0; i < 5; ++i) send(request());
  EXPECT_THAT(send(reply()).writes, SizeIs(1));
  EXPECT_THAT(send(control()).writes, SizeIs(1));
}

TEST_F(LinkLanesTest, what_is_larger_than_the_room_passes_alone) {
  up();
  for (const OutgoingFrame& frame : {request(1 << 20), reply(1 << 20), control(1 << 20)}) {
    EXPECT_THAT(send(frame).writes, SizeIs(1));
    EXPECT_THAT(send(frame).writes, IsEmpty());
  }
}

TEST_F(SmallSendWindowTest, the_room_here_counts_from_the_first_frame_on) {
  EXPECT_TRUE(lanes.has_room(1 << 20)) << "one alone always may";
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(lanes.has_room(0));
    send(request());
  }
  EXPECT_FALSE(lanes.has_room(0));
  up();
  EXPECT_FALSE(lanes.has_room(0)) << "until receipts come";
  EXPECT_TRUE(hear_receipts(Lane::kCalls, 1, 1).room);
  EXPECT_TRUE(lanes.has_room(0));
}

TEST_F(LinkLanesTest, requests_beyond_the_room_are_a_violation) {
  up();
  for (std::uint64_t number = 1; number <= 4; ++number) {
    hear(incoming(FrameKind::kRequest, number));
    ASSERT_EQ(delivery, Delivery::kDeliver);
  }
  hear(incoming(FrameKind::kRequest, 5));
  EXPECT_EQ(delivery, Delivery::kViolation);
}

TEST_F(LinkLanesTest, what_is_announced_takes_room) {
  up();
  EXPECT_TRUE(lanes.announce(incoming(FrameKind::kReply, 1), kCost));
  EXPECT_FALSE(lanes.announce(incoming(FrameKind::kReply, 2), 0));
  EXPECT_TRUE(lanes.announce(incoming(FrameKind::kRequest, 3), kCost)) << "a room of its own";
  hear(incoming(FrameKind::kReply, 1), kCost);
  EXPECT_TRUE(lanes.announce(incoming(FrameKind::kReply, 2), 0));
}

TEST_F(LinkLanesTest, a_frame_is_announced_once) {
  up();
  EXPECT_TRUE(lanes.announce(incoming(FrameKind::kReply, 1), 0));
  EXPECT_FALSE(lanes.announce(incoming(FrameKind::kReply, 1), 0));
  hear(incoming(FrameKind::kReply, 1));
  EXPECT_TRUE(lanes.announce(incoming(FrameKind::kReply, 2), kCost));
}

TEST_F(LinkLanesTest, what_comes_as_another_kind_than_announced_gains_no_room) {
  up();
  EXPECT_TRUE(lanes.announce(incoming(FrameKind::kReply, 1), kCost));
  hear(incoming(FrameKind::kRequest, 1), kCost);
  EXPECT_TRUE(lanes.announce(incoming(FrameKind::kReply, 2), kCost)) << "the room is free again";
  EXPECT_TRUE(lanes.announce(incoming(FrameKind::kRequest, 3), kCost));
  EXPECT_FALSE(lanes.announce(incoming(FrameKind::kRequest, 4), 0)) << "four places, all taken";
}

TEST_F(LinkLanesTest, what_was_announced_on_a_broken_connection_does_not_come) {
  up();
  EXPECT_TRUE(lanes.announce(incoming(FrameKind::kReply, 1), kCost));
  lanes.on_down();
  up();
  EXPECT_TRUE(lanes.announce(incoming(FrameKind::kReply, 1), kCost));
}

}  // namespace
}  // namespace sinew::internal
