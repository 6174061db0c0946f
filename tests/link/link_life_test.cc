#include "sinew/rpc/link/link_life.h"

#include <chrono>

#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using TimePoint = LinkLife::TimePoint;

constexpr TimePoint kStart{seconds(1000)};
constexpr LeaseTerms kTerms{seconds(1), seconds(10)};

LinkLife in_contact() {
  LinkLife life(kTerms, kStart);
  life.agree(kTerms);
  life.on_contact(kStart, kStart);
  return life;
}

// L7.

TEST(LinkLife, nothing_expires_before_the_first_contact) {
  const LinkLife life(kTerms, kStart);
  EXPECT_FALSE(life.fenced(kStart + seconds(1000)));
  EXPECT_FALSE(life.suspected(kStart + seconds(1000)));
}

TEST(LinkLife, the_holder_counts_from_when_it_sent_what_was_answered) {
  LinkLife life = in_contact();
  const std::uint64_t beat = life.take_beat(kStart + seconds(1));
  life.on_beat_reply(beat, kStart + seconds(4));
  EXPECT_FALSE(life.fenced(kStart + seconds(11) - nanoseconds(1)));
  EXPECT_TRUE(life.fenced(kStart + seconds(11)));
}

TEST(LinkLife, the_owner_counts_from_when_it_heard_and_leaves_a_quarter) {
  LinkLife life = in_contact();
  life.on_beat(kStart + seconds(4));
  EXPECT_EQ(life.drop_at(), kStart + seconds(4) + milliseconds(12500));
}

TEST(LinkLife, a_beat_that_is_only_heard_keeps_nothing_alive_that_is_held) {
  LinkLife life = in_contact();
  for (int second = 1; second <= 10; ++second) life.on_beat(kStart + seconds(second));
  EXPECT_TRUE(life.fenced(kStart + seconds(10)));
}

TEST(LinkLife, the_smaller_lease_fences_and_the_larger_one_drops) {
  LinkLife life(kTerms, kStart);
  life.agree({milliseconds(100), seconds(4)});
  life.on_contact(kStart, kStart);
  EXPECT_EQ(life.fence_at(), kStart + seconds(4));
  EXPECT_EQ(life.drop_at(), kStart + milliseconds(12500));
  EXPECT_EQ(life.interval(), milliseconds(100));
}

TEST(LinkLife, an_interval_has_room_for_five_beats_in_the_smaller_lease) {
  LinkLife life(kTerms, kStart);
  life.agree({seconds(1), seconds(3)});
  EXPECT_EQ(life.interval(), milliseconds(600));
}

TEST(LinkLife, an_older_answer_does_not_move_the_lease_back) {
  LinkLife life = in_contact();
  const std::uint64_t first = life.take_beat(kStart + seconds(1));
  const std::uint64_t second = life.take_beat(kStart + seconds(2));
  life.on_beat_reply(second, kStart + seconds(3));
  life.on_beat_reply(first, kStart + seconds(3));
  EXPECT_EQ(life.fence_at(), kStart + seconds(12));
  life.on_contact(kStart + seconds(1), kStart + seconds(3));
  EXPECT_EQ(life.fence_at(), kStart + seconds(12));
}

TEST(LinkLife, an_answer_to_a_beat_that_was_never_sent_changes_nothing) {
  LinkLife life = in_contact();
  const std::uint64_t beat = life.take_beat(kStart + seconds(1));
  life.on_beat_reply(beat + 1, kStart + seconds(2));
  EXPECT_EQ(life.fence_at(), kStart + seconds(10));
  life.on_beat_reply(beat, kStart + seconds(2));
  EXPECT_EQ(life.fence_at(), kStart + seconds(11));
}

TEST(LinkLife, it_is_suspicious_at_half_the_smaller_lease) {
  const LinkLife life = in_contact();
  EXPECT_FALSE(life.suspected(kStart + seconds(5) - nanoseconds(1)));
  EXPECT_TRUE(life.suspected(kStart + seconds(5)));
}

TEST(LinkLife, terms_fit_when_neither_end_loses_the_other_by_them) {
  EXPECT_TRUE(terms_fit(kTerms, kTerms));
  EXPECT_TRUE(terms_fit({seconds(1), seconds(3)}, {seconds(1), seconds(15)}));
  EXPECT_FALSE(terms_fit(kTerms, {seconds(4), seconds(10)})) << "no room for three beats";
  EXPECT_FALSE(terms_fit(kTerms, {milliseconds(1), milliseconds(99)}));
  EXPECT_FALSE(terms_fit(kTerms, {seconds(1), seconds(1001)}));
  EXPECT_FALSE(terms_fit(kTerms, {seconds(0), seconds(10)}));
  EXPECT_FALSE(terms_fit(kTerms, {nanoseconds(1), seconds(10)})) << "would have us beat for ever";
  EXPECT_TRUE(terms_fit({milliseconds(1), seconds(10)}, {milliseconds(1), seconds(10)}));
  EXPECT_TRUE(terms_fit({seconds(3), seconds(120)}, {seconds(1), seconds(120)}));
  EXPECT_FALSE(terms_fit({seconds(3), seconds(120)}, {milliseconds(999), seconds(120)}));
}

}  // namespace
}  // namespace sinew::internal
