#include <chrono>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/link/support/lanes_fixture.h"
#include "sinew/tests/link/support/link_inspector.h"

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
