// Whose connection counts, and what a link makes of refusals; the rest is in link_test.cc.

#include <chrono>
#include <cstdint>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/link/link_end.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using State = Link::State;

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

TEST_F(LinkTurnTest, the_first_attempt_waits_for_its_turn) {
  const Link::Outputs outputs = send();
  EXPECT_TRUE(outputs.wants_turn);
  EXPECT_EQ(outputs.dial, 0);
  EXPECT_EQ(link.state(), State::kQueued);
  EXPECT_FALSE(send().wants_turn) << "one turn";
  EXPECT_EQ(pass(seconds(60)), 0) << "however long that takes";
  EXPECT_EQ(take_turn().dial, 1);
  EXPECT_EQ(link.state(), State::kDialling);
}

TEST_F(LinkTurnTest, who_waits_for_its_turn_takes_what_is_offered) {
  connect();
  EXPECT_THAT(offer(hello(theirs(1))).close, IsEmpty());
  EXPECT_EQ(refusal, Refusal::kNone);
  EXPECT_EQ(take_turn().dial, 0) << "it comes too late";
  EXPECT_EQ(link.state(), State::kAccepted);
  up(theirs(1));
  EXPECT_EQ(link.state(), State::kUp);
}

TEST_F(LinkTurnTest, a_turn_that_nobody_wants_any_more_passes) {
  send();
  Link::Outputs outputs;
  link.give_up(token, now, outputs);
  EXPECT_EQ(take_turn().dial, 0);
  EXPECT_EQ(link.state(), State::kIdle);
  EXPECT_TRUE(send().wants_turn);
}

TEST_F(LinkTurnTest, who_is_asked_to_come_waits_for_no_turn) {
  Link::Outputs outputs;
  link.connect_at_once(now, outputs);
  EXPECT_EQ(outputs.dial, 1);
  EXPECT_FALSE(outputs.wants_turn);
}

TEST_F(LinkTurnTest, nor_does_it_go_on_waiting) {
  connect();
  Link::Outputs outputs;
  link.connect_at_once(now, outputs);
  EXPECT_EQ(outputs.dial, 1);
  EXPECT_EQ(take_turn().dial, 0);
  EXPECT_EQ(down(own(1)).dial, 0);
  ASSERT_EQ(link.state(), State::kBackingOff);
  link.connect_at_once(now, outputs);
  EXPECT_EQ(outputs.dial, 2);
}

TEST_F(LinkTurnTest, an_attempt_after_one_that_failed_waits_for_no_turn) {
  connect();
  take_turn();
  EXPECT_FALSE(down(own(1)).wants_turn);
  EXPECT_EQ(pass(seconds(1)), 2);
}

TEST_F(LinkTurnTest, who_was_up_waits_for_no_turn) {
  connect();
  take_turn();
  up(own(1));
  const Link::Outputs outputs = down(own(1));
  EXPECT_FALSE(outputs.wants_turn);
  EXPECT_EQ(outputs.dial, 2);
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
  EXPECT_EQ(down(own(2), DownCause::kRefused, Refusal::kLostHere, true).end, Gone::kLinkEndedThere);
}

TEST_F(LinkTest, that_it_is_lost_there_is_a_suspicion_without_proof) {
  dial_up();
  down(own(1));
  EXPECT_EQ(down(own(2), DownCause::kRefused, Refusal::kLostHere, false).end, std::nullopt);
  EXPECT_EQ(link.state(), State::kBackingOff);
}

}  // namespace
}  // namespace sinew::internal
