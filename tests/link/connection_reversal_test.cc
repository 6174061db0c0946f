#include "sinew/rpc/link/connection_reversal.h"

#include <chrono>

#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using TimePoint = ConnectionReversal::TimePoint;

constexpr TimePoint kStart{seconds(1000)};
constexpr nanoseconds kStep = milliseconds(100);

/// Attempts that fail, one in each step, and what is asked meanwhile.
class ConnectionReversalTest : public ::testing::Test {
 protected:
  enum class Answer { kYes, kNo, kNone };
  /// How often somebody was asked.
  int fail_for(nanoseconds time, Answer answer) {
    int questions = 0;
    for (const TimePoint end = now_ + time; now_ < end; now_ += kStep) {
      reversal_.on_dial(now_);
      reversal_.on_failed(now_);
      if (!reversal_.take_question(now_)) continue;
      ++questions;
      if (answer != Answer::kNone) reversal_.on_answer(answer == Answer::kYes, now_);
    }
    return questions;
  }

  ConnectionReversal reversal_{std::chrono::hours(1)};
  TimePoint now_ = kStart;
};

TEST_F(ConnectionReversalTest, the_first_failure_asks_at_once) {
  reversal_.on_dial(now_);
  EXPECT_FALSE(reversal_.take_question(now_));
  reversal_.on_failed(now_);
  EXPECT_EQ(reversal_.wake(), now_);
  EXPECT_TRUE(reversal_.take_question(now_));
  EXPECT_FALSE(reversal_.take_question(now_));
}

TEST_F(ConnectionReversalTest, so_does_an_attempt_that_says_nothing) {
  reversal_.on_dial(now_);
  EXPECT_EQ(reversal_.wake(), now_ + ConnectionReversal::kSilence);
  EXPECT_FALSE(reversal_.take_question(reversal_.wake() - milliseconds(1)));
  EXPECT_TRUE(reversal_.take_question(reversal_.wake()));
  EXPECT_EQ(reversal_.wake(), now_ + ConnectionReversal::kSilence + seconds(1))
      << "it may not have helped";
}

TEST_F(ConnectionReversalTest, questions_are_rare) {
  EXPECT_EQ(fail_for(seconds(1), Answer::kNone), 1);
  EXPECT_EQ(fail_for(seconds(60), Answer::kNone), 9);
}

TEST_F(ConnectionReversalTest, they_stay_so_where_one_call_after_the_other_fails) {
  int questions = 0;
  for (int call = 0; call < 100; ++call) {
    questions += fail_for(kStep, Answer::kNo);
    reversal_.reset();
  }
  EXPECT_EQ(questions, 10);
}

TEST_F(ConnectionReversalTest, calls_wait_for_the_answer) {
  EXPECT_FALSE(reversal_.awaits(now_));
  fail_for(kStep, Answer::kNone);
  EXPECT_TRUE(reversal_.awaits(kStart + ConnectionReversal::kAnswerTime - nanoseconds(1)));
  EXPECT_FALSE(reversal_.awaits(kStart + ConnectionReversal::kAnswerTime));
}

TEST_F(ConnectionReversalTest, nobody_waits_for_who_cannot_be_asked) {
  fail_for(seconds(5), Answer::kNo);
  for (TimePoint time = kStart; time < now_ + seconds(60); time += kStep) {
    EXPECT_FALSE(reversal_.awaits(time));
  }
}

TEST_F(ConnectionReversalTest, who_has_been_asked_is_waited_for_and_not_for_ever) {
  fail_for(kStep, Answer::kYes);
  EXPECT_TRUE(reversal_.awaits(kStart + seconds(3)));
  fail_for(seconds(60), Answer::kYes);
  EXPECT_TRUE(reversal_.awaits(kStart + ConnectionReversal::kLongestGrace - nanoseconds(1)));
  EXPECT_FALSE(reversal_.awaits(kStart + ConnectionReversal::kLongestGrace));
}

TEST_F(ConnectionReversalTest, who_has_come_or_is_not_wanted_is_not_asked) {
  fail_for(kStep, Answer::kYes);
  reversal_.reset();
  EXPECT_EQ(reversal_.wake(), TimePoint::max());
  EXPECT_FALSE(reversal_.awaits(now_));
  reversal_.on_answer(true, now_);
  EXPECT_FALSE(reversal_.awaits(now_)) << "the answer came too late";
}

TEST(ConnectionReversalWithAShortLease, silence_is_a_fifth_of_it) {
  ConnectionReversal reversal(seconds(1));
  reversal.on_dial(kStart);
  EXPECT_EQ(reversal.wake(), kStart + milliseconds(200));
}

}  // namespace
}  // namespace sinew::internal
