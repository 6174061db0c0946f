#include "sinew/rpc/link/link.h"

#include <chrono>
#include <cstdint>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sinew::internal {

struct Outbound {};

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using State = Link::State;
using TimePoint = Link::TimePoint;

constexpr TimePoint kStart{seconds(1000)};
constexpr Incarnation kLow{1};
constexpr Incarnation kHigh{2};
constexpr LeaseTerms kTerms{seconds(1), seconds(10)};

OutgoingFrame request() {
  OutgoingFrame frame;
  frame.content = std::make_shared<Outbound>();
  return frame;
}

/// One end, whose other end is the test.
class LinkTest : public testing::Test {
 protected:
  explicit LinkTest(Incarnation self = kLow)
      : peer(self == kLow ? kHigh : kLow), link({self, peer, {}, kTerms}, kStart) {}

  ConnectionName own(std::uint64_t attempt) const { return {link.options().self, attempt}; }
  ConnectionName theirs(std::uint64_t attempt) const { return {peer, attempt}; }
  LinkHello hello(const ConnectionName& connection, const ConnectionName& last_up = {}) const {
    LinkHello hello;
    hello.connection = connection;
    hello.last_up = last_up;
    hello.terms = kTerms;
    return hello;
  }

  Link::Outputs send() {
    Link::Outputs outputs;
    token = link.send(request(), now, outputs);
    return outputs;
  }
  Link::Outputs connect() {
    Link::Outputs outputs;
    link.connect(now, outputs);
    return outputs;
  }
  Link::Outputs offer(const LinkHello& hello) {
    Link::Outputs outputs;
    refusal = link.on_offer(hello, now, outputs);
    return outputs;
  }
  Link::Outputs up(const ConnectionName& connection) {
    Link::Outputs outputs;
    link.on_up(connection, hello(connection), now, outputs);
    return outputs;
  }
  Link::Outputs down(const ConnectionName& connection, DownCause cause = DownCause::kBroken,
                     Refusal why = Refusal::kNone, bool proved = false) {
    Link::Outputs outputs;
    link.on_down(connection, cause, why, proved, now, outputs);
    return outputs;
  }
  Link::Outputs hear(const ConnectionName& on, const LinkHeader& header) {
    Link::Outputs outputs;
    delivery = link.on_frame(on, header, 0, now, outputs);
    return outputs;
  }
  Link::Outputs hear_request(const ConnectionName& on, std::uint64_t number) {
    LinkHeader header;
    header.kind = FrameKind::kRequest;
    header.number = number;
    return hear(on, header);
  }
  Link::Outputs poll() {
    Link::Outputs outputs;
    link.poll(now, outputs);
    return outputs;
  }
  /// Polls whenever the link wants to be polled, until then. Returns the last attempt to connect.
  std::uint64_t pass(nanoseconds time) {
    std::uint64_t dial = 0;
    const TimePoint end = now + time;
    for (; link.wake() <= end; now = std::max(now, link.wake())) {
      now = std::max(now, link.wake());
      if (const std::uint64_t attempt = poll().dial; attempt != 0) dial = attempt;
    }
    now = end;
    if (const std::uint64_t attempt = poll().dial; attempt != 0) dial = attempt;
    return dial;
  }
  /// This end opens a connection, and it is up.
  void dial_up() {
    const std::uint64_t attempt = connect().dial;
    ASSERT_NE(attempt, 0);
    up(own(attempt));
    ASSERT_EQ(link.state(), State::kUp);
  }
  /// The other end opens one, and says something on it.
  void accept_up(std::uint64_t attempt = 1) {
    offer(hello(theirs(attempt)));
    ASSERT_EQ(refusal, Refusal::kNone);
    up(theirs(attempt));
    hear(theirs(attempt), LinkHeader{});
    ASSERT_EQ(link.state(), State::kUp);
  }

  const Incarnation peer;
  Link link;
  TimePoint now = kStart;
  FrameToken token = 0;
  Refusal refusal = Refusal::kNone;
  LinkLanes::Delivery delivery = LinkLanes::Delivery::kDrop;
};

/// The end that does not decide when both open a connection.
class LinkFollowerTest : public LinkTest {
 protected:
  LinkFollowerTest() : LinkTest(kHigh) {}
};

// ---- L8: one connection.

TEST_F(LinkTest, the_first_frame_makes_a_connection) {
  EXPECT_EQ(link.state(), State::kIdle);
  EXPECT_EQ(send().dial, 1);
  EXPECT_EQ(link.state(), State::kDialling);
  EXPECT_EQ(send().dial, 0) << "one at a time";
  EXPECT_THAT(up(own(1)).writes, SizeIs(3)) << "both, and a beat";
}

TEST_F(LinkTest, an_end_without_a_connection_takes_what_is_offered) {
  offer(hello(theirs(1)));
  EXPECT_EQ(refusal, Refusal::kNone);
  EXPECT_EQ(link.state(), State::kAccepted);
  up(theirs(1));
  EXPECT_EQ(link.state(), State::kUp);
  EXPECT_EQ(send().dial, 0);
}

TEST_F(LinkTest, of_two_that_open_at_once_the_smaller_decides_for_a_while) {
  connect();
  offer(hello(theirs(1)));
  EXPECT_EQ(refusal, Refusal::kBusy);
  now += milliseconds(250);
  EXPECT_THAT(offer(hello(theirs(2))).close, ElementsAre(own(1)));
  EXPECT_EQ(refusal, Refusal::kNone);
}

TEST_F(LinkTest, the_smaller_is_more_patient_when_yielding_did_not_help) {
  connect();
  now += milliseconds(250);
  offer(hello(theirs(1)));
  ASSERT_EQ(refusal, Refusal::kNone);
  up(theirs(1));
  down(theirs(1));
  ASSERT_NE(pass(milliseconds(20)), 0);
  now += milliseconds(499);
  offer(hello(theirs(2)));
  EXPECT_EQ(refusal, Refusal::kBusy);
  now += milliseconds(1);
  offer(hello(theirs(3)));
  EXPECT_EQ(refusal, Refusal::kNone);
}

TEST_F(LinkTest, connections_that_break_at_once_are_made_ever_more_slowly) {
  dial_up();
  std::uint64_t attempt = 1;
  for (int i = 0; i < 6; ++i) {
    std::uint64_t next = down(own(attempt)).dial;
    while (next == 0) next = pass(milliseconds(10));
    attempt = next;
    up(own(attempt));
  }
  EXPECT_GT(now, kStart + milliseconds(500));
}

TEST_F(LinkFollowerTest, of_two_that_open_at_once_the_larger_yields) {
  connect();
  EXPECT_THAT(offer(hello(theirs(1))).close, ElementsAre(own(1)));
  EXPECT_EQ(refusal, Refusal::kNone);
}

TEST_F(LinkFollowerTest, who_was_refused_as_busy_tries_again_soon) {
  connect();
  down(own(1), DownCause::kRefused, Refusal::kBusy);
  EXPECT_EQ(link.state(), State::kBackingOff);
  EXPECT_EQ(pass(milliseconds(50)), 2);
}

TEST_F(LinkTest, a_second_connection_is_a_duplicate) {
  dial_up();
  offer(hello(theirs(1)));
  EXPECT_EQ(refusal, Refusal::kDuplicate);
  EXPECT_EQ(link.state(), State::kUp);
}

TEST_F(LinkTest, a_connection_that_names_the_present_one_supersedes_it) {
  dial_up();
  EXPECT_THAT(offer(hello(theirs(1), own(1))).close, ElementsAre(own(1)));
  EXPECT_EQ(refusal, Refusal::kNone);
}

TEST_F(LinkTest, a_later_attempt_of_the_end_that_opened_it_supersedes_the_present_one) {
  accept_up(3);
  offer(hello(theirs(2)));
  EXPECT_EQ(refusal, Refusal::kDuplicate) << "an old hello";
  offer(hello(theirs(3)));
  EXPECT_EQ(refusal, Refusal::kDuplicate) << "the same once more";
  EXPECT_THAT(offer(hello(theirs(4))).close, ElementsAre(theirs(3)));
  EXPECT_EQ(refusal, Refusal::kNone);
}

TEST_F(LinkTest, packets_of_a_superseded_connection_are_dropped) {
  accept_up(1);
  offer(hello(theirs(2)));
  up(theirs(2));
  hear_request(theirs(1), 1);
  EXPECT_EQ(delivery, LinkLanes::Delivery::kDrop);
  hear_request(theirs(2), 1);
  EXPECT_EQ(delivery, LinkLanes::Delivery::kDeliver);
}

TEST_F(LinkTest, an_attempt_that_succeeds_too_late_is_closed) {
  connect();
  now += milliseconds(250);
  offer(hello(theirs(1)));
  EXPECT_THAT(up(own(1)).close, ElementsAre(own(1)));
  EXPECT_EQ(link.state(), State::kAccepted);
}

TEST_F(LinkTest, who_opened_a_connection_that_breaks_opens_the_next_one_at_once) {
  dial_up();
  now += seconds(5);
  EXPECT_EQ(down(own(1)).dial, 2);
}

TEST_F(LinkTest, who_did_not_open_it_leaves_the_other_end_time) {
  accept_up();
  EXPECT_EQ(down(theirs(1)).dial, 0);
  EXPECT_EQ(link.state(), State::kBackingOff);
  EXPECT_NE(pass(seconds(1)), 0);
}

TEST_F(LinkTest, an_attempt_that_comes_to_nothing_is_given_up) {
  connect();
  now = link.wake();
  EXPECT_LE(now, kStart + seconds(7));
  EXPECT_THAT(poll().close, ElementsAre(own(1)));
  EXPECT_EQ(link.state(), State::kBackingOff);
}

TEST_F(LinkTest, a_connection_that_swallows_all_is_given_up_while_there_is_time_for_another) {
  dial_up();
  std::uint64_t attempt = 0;
  while (attempt == 0 && now < kStart + seconds(9)) attempt = pass(milliseconds(100));
  EXPECT_EQ(attempt, 2);
  EXPECT_LE(now, kStart + seconds(7));
  while (attempt == 2 && now < kStart + seconds(10))
    attempt = std::max(attempt, pass(milliseconds(100)));
  EXPECT_EQ(attempt, 2) << "an attempt has a third of the lease";
  EXPECT_TRUE(link.ended());
}

TEST_F(LinkTest, that_a_connection_is_up_can_be_said_twice) {
  dial_up();
  EXPECT_THAT(up(own(1)).close, IsEmpty());
  EXPECT_EQ(link.state(), State::kUp);
}

TEST_F(LinkTest, suspicion_is_noticed_in_time) {
  dial_up();
  down(own(1));
  down(own(2));
  std::optional<bool> suspected;
  while (!suspected.has_value() && now < kStart + seconds(9)) {
    now = link.wake();
    const Link::Outputs outputs = poll();
    suspected = outputs.suspected;
  }
  EXPECT_EQ(now, kStart + seconds(5));
}

// ---- L6: refusals.

TEST(Refusals, each_has_a_consequence_and_a_text) {
  const std::pair<Refusal, Consequence> table[] = {
      {Refusal::kNotListeningYet, Consequence::kTryAgain},
      {Refusal::kUnreachable, Consequence::kTryAgain},
      {Refusal::kDuplicate, Consequence::kTryAgainSoon},
      {Refusal::kBusy, Consequence::kTryAgainSoon},
      {Refusal::kOtherIncarnation, Consequence::kCountAsRefused},
      {Refusal::kOtherJob, Consequence::kCountAsRefused},
      {Refusal::kOtherInstance, Consequence::kCountAsRefused},
      {Refusal::kOtherProtocol, Consequence::kCountAsRefused},
      {Refusal::kLostHere, Consequence::kLostIfProved},
      {Refusal::kEvicted, Consequence::kLostIfProved},
      {Refusal::kLeft, Consequence::kLostIfProved},
      {Refusal::kNotAllowed, Consequence::kFail},
  };
  for (const auto& [refusal, consequence] : table) {
    EXPECT_EQ(consequence_of(refusal), consequence) << text_of(refusal);
    EXPECT_STRNE(text_of(refusal), "an unknown reason");
  }
}

TEST_F(LinkTest, that_it_is_lost_there_ends_the_link_if_it_is_proved) {
  dial_up();
  connect();
  down(own(1));
  EXPECT_EQ(down(own(2), DownCause::kRefused, Refusal::kLostHere, true).end, LinkEnd::kEndedThere);
}

TEST_F(LinkTest, that_it_is_lost_there_is_a_suspicion_without_proof) {
  dial_up();
  down(own(1));
  EXPECT_EQ(down(own(2), DownCause::kRefused, Refusal::kLostHere, false).end, LinkEnd::kNone);
  EXPECT_EQ(link.state(), State::kBackingOff);
}

// ---- L7: alive.

TEST_F(LinkTest, an_address_that_refuses_ends_the_link_after_a_short_fuse) {
  dial_up();
  std::uint64_t attempt = down(own(1)).dial;
  const TimePoint first = now;
  LinkEnd end = LinkEnd::kNone;
  while (end == LinkEnd::kNone && now < first + seconds(5)) {
    end = down(own(attempt), DownCause::kAddressRefuses).end;
    if (end == LinkEnd::kNone) {
      attempt = 0;
      while (attempt == 0) attempt = pass(milliseconds(10));
    }
  }
  EXPECT_EQ(end, LinkEnd::kAddressRefuses);
  EXPECT_GE(now, first + seconds(1));
  EXPECT_LE(now, first + seconds(2));
}

TEST_F(LinkTest, an_address_where_this_end_never_got_through_has_longer_to_come_back) {
  accept_up();
  down(theirs(1));
  const auto first = now;
  LinkEnd end = LinkEnd::kNone;
  while (end == LinkEnd::kNone) {
    std::uint64_t attempt = 0;
    while (attempt == 0) attempt = pass(milliseconds(10));
    end = down(own(attempt), DownCause::kAddressRefuses).end;
  }
  EXPECT_EQ(end, LinkEnd::kAddressRefuses);
  EXPECT_GE(now, first + milliseconds(2500));
  EXPECT_LE(now, first + seconds(4));
}

TEST_F(LinkTest, who_is_not_let_in_any_more_has_a_lease_to_be_let_in_again) {
  dial_up();
  std::uint64_t attempt = down(own(1)).dial;
  while (now < kStart + seconds(5)) {
    EXPECT_EQ(down(own(attempt), DownCause::kRefused, Refusal::kNotAllowed).end, LinkEnd::kNone);
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
  EXPECT_EQ(poll().end, LinkEnd::kLease);
}

TEST_F(LinkTest, who_accepts_and_hears_was_heard) {
  accept_up(1);
  now += seconds(8);
  offer(hello(theirs(2)));
  up(theirs(2));
  hear(theirs(2), LinkHeader{});
  now += seconds(10) - nanoseconds(1);
  EXPECT_EQ(poll().end, LinkEnd::kNone);
  now += nanoseconds(1);
  EXPECT_EQ(poll().end, LinkEnd::kLease);
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
  EXPECT_EQ(poll().end, LinkEnd::kNone);
}

TEST_F(LinkTest, the_lease_ends_the_link_and_each_use_looks) {
  dial_up();
  const FrameToken sent = (send(), token);
  (void)sent;
  now += seconds(10);
  const Link::Outputs outputs = hear_request(own(1), 1);
  EXPECT_EQ(delivery, LinkLanes::Delivery::kDrop);
  EXPECT_EQ(outputs.end, LinkEnd::kLease);
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
  EXPECT_EQ(outputs.end, LinkEnd::kLease);
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
  EXPECT_EQ(outputs.end, LinkEnd::kProcessEnded);
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
  EXPECT_EQ(again.end, LinkEnd::kNone);
}

// ---- L10.

TEST_F(LinkTest, a_link_that_has_ended_accepts_nothing) {
  accept_up();
  Link::Outputs outputs;
  link.close(outputs);
  EXPECT_EQ(outputs.end, LinkEnd::kClosed);
  hear_request(theirs(1), 1);
  EXPECT_EQ(delivery, LinkLanes::Delivery::kDrop);
  offer(hello(theirs(2)));
  EXPECT_EQ(refusal, Refusal::kLostHere);
  EXPECT_THAT(send().ended, SizeIs(1));
  EXPECT_EQ(link.wake(), TimePoint::max());
}

}  // namespace
}  // namespace sinew::internal
