// Whether the other end lives, and the end of a link; its connections: link_connections_test.cc.

#include <chrono>
#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/link/link_end.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using State = Link::State;
using TimePoint = Link::TimePoint;

// ---- L7: alive.

TEST_F(LinkTest, an_address_that_refuses_ends_the_link_after_a_short_fuse) {
  dial_up();
  std::uint64_t attempt = down(own(1)).dial;
  const TimePoint first = now;
  std::optional<Gone> end;
  while (!end.has_value() && now < first + seconds(5)) {
    end = down(own(attempt), DownCause::kAddressRefuses).end;
    if (!end.has_value()) {
      attempt = 0;
      while (attempt == 0) attempt = pass(milliseconds(10));
    }
  }
  EXPECT_EQ(end, Gone::kAddressRefuses);
  EXPECT_GE(now, first + seconds(1));
  EXPECT_LE(now, first + seconds(2));
}

TEST_F(LinkTest, an_address_where_this_end_never_got_through_has_longer_to_come_back) {
  accept_up();
  down(theirs(1));
  const auto first = now;
  std::optional<Gone> end;
  while (!end.has_value()) {
    std::uint64_t attempt = 0;
    while (attempt == 0) attempt = pass(milliseconds(10));
    end = down(own(attempt), DownCause::kAddressRefuses).end;
  }
  EXPECT_EQ(end, Gone::kAddressRefuses);
  EXPECT_GE(now, first + milliseconds(2500));
  EXPECT_LE(now, first + seconds(4));
}

TEST_F(LinkTest, who_is_not_let_in_any_more_has_a_lease_to_be_let_in_again) {
  dial_up();
  std::uint64_t attempt = down(own(1)).dial;
  while (now < kStart + seconds(5)) {
    EXPECT_EQ(down(own(attempt), DownCause::kRefused, Refusal::kNotAllowed).end, std::nullopt);
    attempt = 0;
    while (attempt == 0) attempt = pass(milliseconds(100));
  }
}

TEST_F(LinkTest, who_was_never_reached_is_not_lost) {
  std::uint64_t attempt = send().dial;
  bool unreachable = false;
  while (!unreachable && now < kStart + seconds(5)) {
    unreachable = down(own(attempt), DownCause::kAddressRefuses).unreachable;
    if (!unreachable) {
      attempt = 0;
      while (attempt == 0) attempt = pass(milliseconds(10));
    }
  }
  EXPECT_TRUE(unreachable);
  EXPECT_FALSE(link.ended());
  EXPECT_EQ(link.state(), State::kIdle);
  Link::Outputs outputs;
  EXPECT_EQ(link.give_up(token, now, outputs).state, LinkLanes::GivenUp::State::kNotSent);
  EXPECT_NE(send().dial, 0) << "who wants it may try again";
}

TEST_F(LinkFollowerTest, an_offer_is_word_from_the_other_end) {
  dial_up();
  now += seconds(8);
  down(own(1));
  offer(hello(theirs(1), own(1)));
  EXPECT_EQ(link.state(), State::kAccepted);
  // It may see the connection up, and use what it holds of this end for a lease from now.
  EXPECT_GE(link.drop_at(), now + seconds(10));
}

TEST_F(LinkTest, who_accepts_is_not_heard_before_it_hears) {
  accept_up(1);
  now += seconds(8);
  offer(hello(theirs(2)));
  up(theirs(2));
  // Our hello may be lost: the other end does not know that this one lives.
  now += seconds(2);
  EXPECT_EQ(poll().end, Gone::kSilent);
}

TEST_F(LinkTest, who_accepts_and_hears_was_heard) {
  accept_up(1);
  now += seconds(8);
  offer(hello(theirs(2)));
  up(theirs(2));
  hear(theirs(2), LinkHeader{});
  now += seconds(10) - nanoseconds(1);
  EXPECT_EQ(poll().end, std::nullopt);
  now += nanoseconds(1);
  EXPECT_EQ(poll().end, Gone::kSilent);
}

TEST_F(LinkTest, both_ends_beat_as_soon_as_a_connection_is_up) {
  connect();
  Link::Outputs outputs = up(own(1));
  ASSERT_THAT(outputs.writes, SizeIs(1));
  EXPECT_NE(outputs.writes[0].header.beat, 0);
  down(own(1));
  now += milliseconds(250);
  offer(hello(theirs(1), own(1)));
  outputs = up(theirs(1));
  ASSERT_THAT(outputs.writes, SizeIs(1));
  EXPECT_NE(outputs.writes[0].header.beat, 0);
}

TEST_F(LinkTest, who_accepts_the_first_connection_writes_no_frame_before_it_hears) {
  offer(hello(theirs(1)));
  send();
  EXPECT_THAT(up(theirs(1)).writes, SizeIs(1)) << "a beat";
  EXPECT_THAT(send().writes, IsEmpty());
  EXPECT_THAT(hear(theirs(1), LinkHeader{}).writes, SizeIs(2));
}

TEST_F(LinkTest, what_was_said_on_a_connection_that_nobody_heard_is_forgotten) {
  send();
  now += milliseconds(250);
  offer(hello(theirs(1)));
  up(theirs(1));
  down(theirs(1));
  const std::uint64_t attempt = pass(milliseconds(100));
  ASSERT_NE(attempt, 0);
  EXPECT_THAT(up(own(attempt)).writes, SizeIs(2)) << "the frame once, and a beat";
}

TEST_F(LinkTest, a_handshake_that_took_a_lease_is_made_again) {
  connect();
  now += seconds(10);
  EXPECT_THAT(up(own(1)).close, ElementsAre(own(1)));
  EXPECT_EQ(link.state(), State::kBackingOff);
  offer(hello(theirs(1)));
  up(theirs(1));
  now += seconds(10);
  EXPECT_THAT(hear_request(theirs(1), 1).close, ElementsAre(theirs(1)));
  EXPECT_EQ(delivery, LinkLanes::Delivery::kDrop);
  EXPECT_FALSE(link.ended());
}

TEST_F(LinkTest, who_accepts_and_hears_nothing_ever_has_lost_nobody) {
  offer(hello(theirs(1)));
  up(theirs(1));
  now += seconds(100);
  EXPECT_EQ(poll().end, std::nullopt);
}

TEST_F(LinkTest, the_lease_ends_the_link_and_each_use_looks) {
  dial_up();
  const FrameToken sent = (send(), token);
  (void)sent;
  now += seconds(10);
  const Link::Outputs outputs = hear_request(own(1), 1);
  EXPECT_EQ(delivery, LinkLanes::Delivery::kDrop);
  EXPECT_EQ(outputs.end, Gone::kSilent);
  EXPECT_THAT(outputs.close, ElementsAre(own(1)));
  ASSERT_THAT(outputs.ended, SizeIs(1));
  EXPECT_EQ(outputs.ended[0].how, FrameEnd::kLinkEnded);
}

TEST_F(LinkTest, a_fenced_end_does_not_answer) {
  accept_up();
  now += seconds(10);
  Link::Outputs outputs;
  link.answer_beat(1, now, outputs);
  EXPECT_THAT(outputs.writes, IsEmpty());
  EXPECT_EQ(outputs.end, Gone::kSilent);
  offer(hello(theirs(2)));
  EXPECT_EQ(refusal, Refusal::kLostHere);
}

TEST_F(LinkFollowerTest, the_end_that_does_not_lead_answers_with_its_own_beat) {
  dial_up();
  Link::Outputs outputs;
  link.answer_beat(7, now, outputs);
  ASSERT_THAT(outputs.writes, SizeIs(1));
  EXPECT_EQ(outputs.writes[0].header.beat_reply, 7);
  EXPECT_NE(outputs.writes[0].header.beat, 0);
}

TEST_F(LinkTest, the_end_that_leads_answers_with_its_next_beat) {
  accept_up();
  Link::Outputs outputs;
  link.answer_beat(6, now, outputs);
  ASSERT_THAT(outputs.writes, SizeIs(1)) << "the first at once";
  EXPECT_EQ(outputs.writes[0].header.beat_reply, 6);
  outputs = {};
  link.answer_beat(7, now, outputs);
  EXPECT_THAT(outputs.writes, IsEmpty());
  now += seconds(1);
  outputs = poll();
  ASSERT_THAT(outputs.writes, SizeIs(1));
  EXPECT_EQ(outputs.writes[0].header.beat_reply, 7);
}

TEST_F(LinkFollowerTest, the_end_that_does_not_lead_beats_by_itself_if_nothing_comes) {
  accept_up();
  now += seconds(1);
  EXPECT_THAT(poll().writes, IsEmpty());
  now += milliseconds(500);
  EXPECT_THAT(poll().writes, SizeIs(1));
}

// ---- L7: proof of death.

TEST_F(LinkTest, who_is_proved_to_be_dead_is_not_waited_for) {
  accept_up();
  send();
  now += milliseconds(1);
  down(theirs(1));
  Link::Outputs outputs;
  link.on_process_ended(outputs);
  EXPECT_EQ(outputs.end, Gone::kProcessEnded);
  EXPECT_THAT(outputs.ended, SizeIs(1));
  EXPECT_EQ(link.wake(), TimePoint::max());
}

TEST_F(LinkTest, nothing_is_heard_of_who_is_proved_to_be_dead) {
  accept_up();
  Link::Outputs outputs;
  link.on_process_ended(outputs);
  EXPECT_THAT(outputs.close, ElementsAre(theirs(1)));
  hear_request(theirs(1), 1);
  EXPECT_EQ(delivery, LinkLanes::Delivery::kDrop);
  Link::Outputs again;
  link.on_process_ended(again);
  EXPECT_EQ(again.end, std::nullopt);
}

// ---- L10.

TEST_F(LinkTest, a_link_that_has_ended_accepts_nothing) {
  accept_up();
  Link::Outputs outputs;
  link.close(outputs);
  EXPECT_EQ(outputs.end, Gone::kLinkClosed);
  hear_request(theirs(1), 1);
  EXPECT_EQ(delivery, LinkLanes::Delivery::kDrop);
  offer(hello(theirs(2)));
  EXPECT_EQ(refusal, Refusal::kLostHere);
  EXPECT_THAT(send().ended, SizeIs(1));
  EXPECT_EQ(link.wake(), TimePoint::max());
}

}  // namespace
}  // namespace sinew::internal
