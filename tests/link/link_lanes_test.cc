#include "sinew/rpc/link/link_lanes.h"

#include <chrono>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/link/support/link_inspector.h"
#include "sinew/tests/link/support/outbound.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using TimePoint = LinkLanes::TimePoint;
using Delivery = LinkLanes::Delivery;
using State = LinkLanes::GivenUp::State;

constexpr TimePoint kStart{seconds(1000)};
constexpr std::uint64_t kCost = LinkLanes::kFrameCostBytes;

/// Room for four requests without content, two replies, two control frames.
LinkLimits small_limits() {
  LinkLimits limits;
  limits.request_window_bytes = 4 * kCost;
  limits.reply_window_bytes = 2 * kCost;
  limits.control_window_bytes = 2 * kCost;
  return limits;
}

OutgoingFrame frame(FrameKind kind, std::uint64_t bytes = 0) {
  OutgoingFrame frame;
  frame.kind = kind;
  frame.bytes = bytes;
  frame.content = std::make_shared<Outbound>();
  return frame;
}
OutgoingFrame request(std::uint64_t bytes = 0) { return frame(FrameKind::kRequest, bytes); }
OutgoingFrame reply(std::uint64_t bytes = 0) { return frame(FrameKind::kReply, bytes); }
OutgoingFrame control(std::uint64_t bytes = 0) { return frame(FrameKind::kControl, bytes); }

/// One end, whose other end is the test.
class LinkLanesTest : public testing::Test {
 protected:
  explicit LinkLanesTest(LinkLimits limits = small_limits(),
                         std::uint64_t send_window_bytes = 1 << 20)
      : lanes(limits, send_window_bytes) {}

  LinkOutputs up(const LinkHello& theirs) {
    LinkOutputs outputs;
    lanes.on_up(theirs, now, outputs);
    return outputs;
  }
  LinkOutputs up() {
    LinkHello hello;
    hello.limits = small_limits();
    return up(hello);
  }
  LinkOutputs send(OutgoingFrame frame) {
    LinkOutputs outputs;
    last = lanes.send(std::move(frame), now, outputs);
    return outputs;
  }
  LinkOutputs hear(const LinkHeader& header, std::uint64_t bytes = 0) {
    LinkOutputs outputs;
    delivery = lanes.on_frame(header, bytes, now, outputs);
    return outputs;
  }
  LinkOutputs hear_receipts(Lane lane, std::uint64_t first, std::uint64_t until) {
    LinkHeader header;
    header.received[static_cast<std::size_t>(lane)] = {{first, until}};
    return hear(header);
  }
  static LinkHeader incoming(FrameKind kind, std::uint64_t number) {
    LinkHeader header;
    header.kind = kind;
    header.number = number;
    header.subject = 1;
    return header;
  }
  static LinkHeader incoming_note(std::uint64_t number) {
    LinkHeader header = incoming(FrameKind::kControl, number);
    header.subject = 0;
    return header;
  }
  static std::vector<std::uint64_t> numbers(const LinkOutputs& outputs) {
    std::vector<std::uint64_t> numbers;
    for (const LinkOutputs::Write& write : outputs.writes) numbers.push_back(write.header.number);
    return numbers;
  }

  LinkLanes lanes;
  TimePoint now = kStart;
  FrameToken last = 0;
  Delivery delivery = Delivery::kDrop;
};

class RoomyLanesTest : public LinkLanesTest {
 protected:
  RoomyLanesTest() : LinkLanesTest(LinkLimits{}) {}
};

class SmallSendWindowTest : public LinkLanesTest {
 protected:
  SmallSendWindowTest() : LinkLanesTest(small_limits(), 4 * kCost) {}
};

// ---- L2: delivery.

TEST_F(LinkLanesTest, frames_are_numbered_when_they_are_first_written) {
  EXPECT_THAT(numbers(send(request())), IsEmpty());
  EXPECT_THAT(numbers(up()), ElementsAre(1));
  EXPECT_THAT(numbers(send(reply())), ElementsAre(2)) << "requests and replies share a lane";
  EXPECT_THAT(numbers(send(control())), ElementsAre(1));
}

TEST_F(LinkLanesTest, a_frame_is_kept_until_its_receipt) {
  up();
  send(request());
  EXPECT_EQ(lanes.frames(), 1);
  EXPECT_THAT(hear_receipts(Lane::kControl, 1, 1).ended, IsEmpty()) << "of the other lane";
  const LinkOutputs outputs = hear_receipts(Lane::kCalls, 1, 1);
  ASSERT_THAT(outputs.ended, SizeIs(1));
  EXPECT_EQ(outputs.ended[0].how, FrameEnd::kReceived);
  EXPECT_EQ(lanes.frames(), 0);
}

TEST_F(LinkLanesTest, receipts_of_what_was_never_sent_change_nothing) {
  up();
  send(request());
  EXPECT_THAT(hear_receipts(Lane::kCalls, 2, UINT64_MAX).ended, IsEmpty());
  EXPECT_THAT(hear_receipts(Lane::kCalls, 5, 1).ended, IsEmpty());
  EXPECT_EQ(lanes.frames(), 1);
}

TEST_F(LinkLanesTest, ranges_of_receipts_that_overlap_end_each_frame_once) {
  LinkHello theirs;
  up(theirs);
  for (int i = 0; i < 1000; ++i) send(reply());
  LinkHeader header;
  header.received[1].assign(10000, NumberRange{1, 1000});
  EXPECT_THAT(hear(header).ended, SizeIs(1000));
}

TEST_F(LinkLanesTest, a_frame_that_comes_twice_is_delivered_once) {
  up();
  hear(incoming(FrameKind::kRequest, 1));
  EXPECT_EQ(delivery, Delivery::kDeliver);
  hear(incoming(FrameKind::kRequest, 1));
  EXPECT_EQ(delivery, Delivery::kDrop);
}

TEST_F(RoomyLanesTest, receipts_ride_in_what_leaves_next) {
  up();
  hear(incoming(FrameKind::kRequest, 1));
  hear(incoming(FrameKind::kControl, 1));
  const LinkOutputs outputs = send(reply());
  ASSERT_THAT(outputs.writes, SizeIs(1));
  const LinkHeader& header = outputs.writes[0].header;
  EXPECT_THAT(header.received[0], ElementsAre(NumberRange{1, 1}));
  EXPECT_THAT(header.received[1], ElementsAre(NumberRange{1, 1}));
  EXPECT_THAT(send(reply()).writes[0].header.received[1], IsEmpty()) << "said once";
}

TEST_F(LinkLanesTest, receipts_leave_at_once_when_a_quarter_of_the_window_waits_for_one) {
  up();
  EXPECT_THAT(hear(incoming(FrameKind::kControl, 1)).writes, SizeIs(1));
}

TEST_F(RoomyLanesTest, receipts_that_do_not_fit_into_one_header_follow_at_once) {
  up();
  for (std::uint64_t i = 1; i <= 2 * FrameNumbers::kMaxReported; ++i) {
    hear(incoming(FrameKind::kReply, 2 * i));
  }
  EXPECT_THAT(send(reply()).writes[0].header.received[1], SizeIs(FrameNumbers::kMaxReported));
  EXPECT_LE(lanes.due(), now);
  LinkOutputs outputs;
  lanes.poll(now, outputs);
  ASSERT_THAT(outputs.writes, SizeIs(1));
  EXPECT_THAT(outputs.writes[0].header.received[1], SizeIs(FrameNumbers::kMaxReported));
  EXPECT_EQ(lanes.due(), TimePoint::max());
}

TEST_F(RoomyLanesTest, room_rides_in_large_frames_too_but_counts_as_told_by_others_only) {
  up();
  hear(incoming(FrameKind::kRequest, 1));
  LinkOutputs outputs;
  lanes.return_room(1, kCost, now, outputs);
  EXPECT_THAT(outputs.writes, IsEmpty());
  OutgoingFrame large = reply(1 << 20);
  large.large = true;
  outputs = send(large);
  ASSERT_THAT(outputs.writes, SizeIs(1));
  EXPECT_THAT(outputs.writes[0].header.received[1], IsEmpty()) << "late with it";
  EXPECT_EQ(outputs.writes[0].header.returned_frames, 1) << "who reads it may send at once";
  EXPECT_EQ(send(control()).writes.at(0).header.returned_frames, 1);
  EXPECT_EQ(send(control()).writes.at(0).header.returned_frames, 0) << "told";
  hear(incoming(FrameKind::kRequest, 2), 1 << 20);
  EXPECT_LE(lanes.due(), now + milliseconds(10));
}

// Mostly the reply comes before, and tells it.
TEST_F(RoomyLanesTest, all_the_room_of_a_large_request_is_told_within_milliseconds) {
  up();
  hear(incoming(FrameKind::kRequest, 1), 1 << 20);
  LinkOutputs outputs;
  lanes.return_room(1, LinkLanes::cost(1 << 20), now, outputs);
  EXPECT_THAT(outputs.writes, IsEmpty());
  ASSERT_LE(lanes.due(), now + milliseconds(10));
  now = lanes.due();
  lanes.poll(now, outputs);
  ASSERT_THAT(outputs.writes, SizeIs(1));
  EXPECT_EQ(outputs.writes[0].header.returned_frames, 1);
  EXPECT_EQ(lanes.due(), TimePoint::max());
}

TEST_F(RoomyLanesTest, much_room_is_told_at_once) {
  up();
  const std::uint64_t quarter = LinkLimits{}.request_window_bytes / 4;
  hear(incoming(FrameKind::kRequest, 1), quarter);
  LinkOutputs outputs;
  lanes.return_room(1, LinkLanes::cost(quarter), now, outputs);
  ASSERT_THAT(outputs.writes, SizeIs(1));
  EXPECT_EQ(outputs.writes[0].header.returned_frames, 1);
}

TEST_F(RoomyLanesTest, receipts_of_large_frames_leave_within_milliseconds) {
  up();
  EXPECT_THAT(hear(incoming(FrameKind::kReply, 1), 1 << 20).writes, IsEmpty());
  ASSERT_LE(lanes.due(), now + milliseconds(10));
  now = lanes.due();
  LinkOutputs outputs;
  lanes.poll(now, outputs);
  ASSERT_THAT(outputs.writes, SizeIs(1));
  EXPECT_THAT(outputs.writes[0].header.received[1], ElementsAre(NumberRange{1, 1}));
}

// Their sender may have no room for more than these, and nothing else may leave for long.
TEST_F(RoomyLanesTest, receipts_of_many_small_frames_leave_within_milliseconds) {
  up();
  std::uint64_t number = 0;
  while (number * kCost < std::uint64_t{60} << 10) hear(incoming(FrameKind::kReply, ++number));
  EXPECT_EQ(lanes.due(), TimePoint::max());
  while (number * kCost < std::uint64_t{64} << 10) hear(incoming(FrameKind::kReply, ++number));
  EXPECT_LE(lanes.due(), now + milliseconds(10));
}

TEST_F(RoomyLanesTest, a_note_has_its_receipt_within_milliseconds_of_being_handled_and_not_before) {
  up();
  for (std::uint64_t number = 1; number <= 3; ++number) hear(incoming_note(number), 1 << 20);
  EXPECT_EQ(lanes.due(), TimePoint::max());
  EXPECT_THAT(send(reply()).writes[0].header.received[0], IsEmpty());
  lanes.handled(2, 100, now);
  ASSERT_LE(lanes.due(), now + milliseconds(10));
  now = lanes.due();
  LinkOutputs outputs;
  lanes.poll(now, outputs);
  ASSERT_THAT(outputs.writes, SizeIs(1));
  EXPECT_THAT(outputs.writes[0].header.received[0], ElementsAre(NumberRange{2, 2}));
  EXPECT_EQ(lanes.due(), TimePoint::max());
}

TEST_F(LinkLanesTest, notes_that_fill_a_quarter_of_the_window_have_their_receipts_at_once) {
  up();
  hear(incoming_note(1));
  lanes.handled(1, 0, now);
  EXPECT_LE(lanes.due(), now);
}

TEST_F(RoomyLanesTest, a_note_that_was_given_up_waits_for_nobody) {
  up();
  LinkHeader header = incoming_note(1);
  header.is_void = true;
  hear(header);
  EXPECT_THAT(send(reply()).writes[0].header.received[0], ElementsAre(NumberRange{1, 1}));
}

TEST_F(RoomyLanesTest, a_hello_says_which_notes_have_come_handled_or_not) {
  up();
  hear(incoming_note(1));
  lanes.on_down();
  lanes.handled(1, 0, now);
  EXPECT_EQ(lanes.due(), TimePoint::max());
  LinkHello own;
  lanes.fill_hello(own);
  EXPECT_THAT(own.received[0], ElementsAre(NumberRange{1, 1}));
  up();
  hear(incoming_note(1));
  EXPECT_EQ(delivery, Delivery::kDrop);
}

TEST_F(LinkLanesTest, what_the_other_end_lacks_is_written_again_and_nothing_else) {
  up();
  for (int i = 0; i < 3; ++i) send(request());
  lanes.on_down();
  LinkHello theirs;
  theirs.limits = small_limits();
  theirs.received[1] = {{2, 2}};
  const LinkOutputs outputs = up(theirs);
  EXPECT_THAT(numbers(outputs), ElementsAre(1, 3));
  EXPECT_THAT(outputs.ended, SizeIs(1));
}

TEST_F(LinkLanesTest, what_was_given_up_is_written_again_void_and_ends_at_its_receipt) {
  up();
  send(request(7));
  LinkOutputs outputs;
  const LinkLanes::GivenUp given_up = lanes.give_up(last, now, outputs);
  EXPECT_EQ(given_up.state, State::kOnItsWay);
  EXPECT_EQ(given_up.number, 1);
  EXPECT_THAT(outputs.ended, IsEmpty());
  lanes.on_down();
  outputs = up();
  ASSERT_THAT(outputs.writes, SizeIs(1));
  EXPECT_TRUE(outputs.writes[0].header.is_void);
  EXPECT_EQ(outputs.writes[0].header.bytes, 7);
  EXPECT_EQ(outputs.writes[0].content, nullptr);
  EXPECT_THAT(hear_receipts(Lane::kCalls, 1, 1).ended, SizeIs(1));
}

TEST_F(LinkLanesTest, what_is_overdue_is_written_again_void) {
  up();
  OutgoingFrame overdue = request();
  overdue.deadline = now + seconds(1);
  send(overdue);
  lanes.on_down();
  now += seconds(1);
  EXPECT_TRUE(up().writes[0].header.is_void);
}

TEST_F(LinkLanesTest, what_never_left_ends_at_once_when_it_is_given_up) {
  send(request());
  LinkOutputs outputs;
  EXPECT_EQ(lanes.give_up(last, now, outputs).state, State::kNotSent);
  ASSERT_THAT(outputs.ended, SizeIs(1));
  EXPECT_EQ(outputs.ended[0].how, FrameEnd::kNotSent);
  EXPECT_EQ(lanes.give_up(last, now, outputs).state, State::kReceived) << "not known any more";
  EXPECT_THAT(up().writes, IsEmpty());
}

TEST_F(LinkLanesTest, what_waited_behind_a_frame_that_is_given_up_leaves) {
  up();
  send(request());
  send(request(4 * kCost));
  const FrameToken large = last;
  EXPECT_THAT(send(request()).writes, IsEmpty()) << "in the order in which they were sent";
  LinkOutputs outputs;
  EXPECT_EQ(lanes.give_up(large, now, outputs).state, State::kNotSent);
  EXPECT_THAT(outputs.writes, IsEmpty()) << "they may be given up too";
  EXPECT_EQ(lanes.due(), now);
  lanes.poll(now, outputs);
  EXPECT_THAT(numbers(outputs), ElementsAre(2));
  EXPECT_EQ(lanes.due(), TimePoint::max());
}

TEST_F(LinkLanesTest, a_void_frame_takes_its_number_and_gives_its_room_back) {
  up();
  LinkHeader header = incoming(FrameKind::kRequest, 1);
  header.is_void = true;
  header.bytes = 100;
  const LinkOutputs outputs = hear(header);
  EXPECT_EQ(delivery, Delivery::kDrop);
  ASSERT_FALSE(outputs.writes.empty());
  EXPECT_EQ(outputs.writes[0].header.returned_bytes, 100 + kCost);
}

TEST_F(LinkLanesTest, a_cancel_that_comes_first_makes_its_frame_void) {
  up();
  EXPECT_TRUE(lanes.void_incoming(Lane::kCalls, 1));
  hear(incoming(FrameKind::kRequest, 1));
  EXPECT_EQ(delivery, Delivery::kDrop);
  hear(incoming(FrameKind::kRequest, 2));
  EXPECT_EQ(delivery, Delivery::kDeliver);
  EXPECT_FALSE(lanes.void_incoming(Lane::kCalls, 2));
}

TEST_F(LinkLanesTest, no_more_than_so_many_large_frames_are_without_a_receipt) {
  LinkHello theirs;
  up(theirs);
  OutgoingFrame large = reply();
  large.large = true;
  for (std::size_t i = 0; i < LinkLanes::kMaxLargeFrames; ++i) {
    ASSERT_THAT(send(large).writes, SizeIs(1));
  }
  EXPECT_THAT(send(large).writes, IsEmpty());
  EXPECT_THAT(numbers(hear_receipts(Lane::kCalls, 3, 3)),
              ElementsAre(LinkLanes::kMaxLargeFrames + 1));
}

TEST_F(LinkLanesTest, frames_that_are_given_up_leave_nothing_while_nobody_is_there) {
  for (int i = 0; i < 10000; ++i) {
    send(request());
    LinkOutputs outputs;
    lanes.give_up(last, now, outputs);
  }
  EXPECT_LE(LinkInspector::waiting(lanes), 1000);
  send(request());
  EXPECT_THAT(up().writes, SizeIs(1));
}

// ---- L3, L4: room.

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

// ---- L10.

TEST_F(LinkLanesTest, frames_end_with_the_link) {
  up();
  send(request());
  for (int i = 0; i < 4; ++i) send(reply());
  LinkOutputs outputs;
  lanes.close(outputs);
  ASSERT_THAT(outputs.ended, SizeIs(5));
  EXPECT_EQ(outputs.ended[0].how, FrameEnd::kLinkEnded);
  EXPECT_EQ(outputs.ended[4].how, FrameEnd::kNotSent);
  outputs = send(request());
  ASSERT_THAT(outputs.ended, SizeIs(1));
  EXPECT_EQ(outputs.ended[0].how, FrameEnd::kNotSent);
}

}  // namespace
}  // namespace sinew::internal
