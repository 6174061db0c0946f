// Which side of a job stays when the two meet.

#include "sinew/rpc/membership/standing_poll.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

using OfOther = Standing::OfOther;

Member member(std::int32_t rank) {
  return {{"w" + std::to_string(rank), rank, {static_cast<std::uint64_t>(rank) + 100}}, "at"};
}
Standing says(OfOther of_other, std::uint32_t members, std::int32_t coordinator_rank) {
  return {
      of_other, members, coordinator_rank, {static_cast<std::uint64_t>(coordinator_rank) + 100}};
}

TEST(OutweighsTest, IsAStrictOrder) {
  std::vector<Standing> all;
  for (std::uint32_t members : {1u, 2u, 5u}) {
    for (std::int32_t rank : {0, 1, 3}) all.push_back(says(OfOther::kEvicted, members, rank));
  }
  Standing same_rank = all[0];
  same_rank.coordinator = {7};
  all.push_back(same_rank);
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = 0; b < all.size(); ++b) {
      EXPECT_EQ(outweighs(all[a], all[b]) + outweighs(all[b], all[a]), a == b ? 0 : 1) << a << b;
    }
  }
}

TEST(StandingPollTest, MoreMembersStay) {
  // This worker is rank 0; it says of its list, which is old, that it has four members.
  StandingPoll poll({member(1), member(2), member(3)}, {});
  poll.on_answer(member(1).worker, says(OfOther::kEvicted, 2, 1));
  EXPECT_FALSE(poll.is_done());
  poll.on_answer(member(2).worker, says(OfOther::kEvicted, 2, 1));
  poll.on_answer(member(3).worker, absl::DeadlineExceededError("silent"));
  ASSERT_TRUE(poll.is_done());
  const auto by = poll.evicted_by(member(0).worker);
  ASSERT_TRUE(by.has_value());
  EXPECT_EQ(by->rank, 1);
}

TEST(StandingPollTest, OfTwoEqualSidesThatOfTheLowerRankStays) {
  for (const int own : {0, 2}) {
    const int other = 2 - own;
    StandingPoll poll({member(other)}, {});
    poll.on_answer(member(other).worker, says(OfOther::kEvicted, 1, other));
    EXPECT_EQ(poll.evicted_by(member(own).worker).has_value(), own == 2);
  }
}

TEST(StandingPollTest, WhoHasThisWorkerOnTheListIsOnItsSide) {
  StandingPoll poll({member(1), member(2), member(3)}, {});
  poll.on_answer(member(1).worker, says(OfOther::kMember, 3, 0));
  poll.on_answer(member(2).worker, says(OfOther::kMember, 3, 0));
  poll.on_answer(member(3).worker, says(OfOther::kEvicted, 1, 3));
  EXPECT_FALSE(poll.evicted_by(member(0).worker).has_value());
}

// Whom this worker takes for its coordinator has a say only if it answers.
TEST(StandingPollTest, TheCoordinatorOfASideIsOneThatAnswers) {
  StandingPoll poll({member(0), member(1), member(2)}, {});
  poll.on_answer(member(0).worker, absl::DeadlineExceededError("silent"));
  poll.on_answer(member(1).worker, absl::DeadlineExceededError("silent"));
  poll.on_answer(member(2).worker, says(OfOther::kEvicted, 1, 2));
  EXPECT_TRUE(poll.evicted_by(member(3).worker).has_value());
  StandingPoll other({member(0), member(1), member(2)}, {});
  other.on_answer(member(1).worker, says(OfOther::kMember, 3, 0));
  other.on_answer(member(2).worker, says(OfOther::kEvicted, 2, 2));
  EXPECT_FALSE(other.evicted_by(member(3).worker).has_value());
}

TEST(StandingPollTest, NeitherStrangersNorThoseThatAreOutHaveASay) {
  StandingPoll poll({member(1), member(2), member(3)}, {});
  poll.on_answer(member(1).worker, says(OfOther::kEvicted, 0, -1));
  poll.on_answer(member(2).worker, says(OfOther::kUnknown, 9, 0));
  poll.on_answer(member(7).worker, says(OfOther::kEvicted, 9, 0));  // was not asked
  poll.on_answer(member(3).worker, says(OfOther::kLeft, 9, 0));
  ASSERT_TRUE(poll.is_done());
  EXPECT_FALSE(poll.evicted_by(member(0).worker).has_value());
}

TEST(StandingPollTest, TheFirstAnswerCounts) {
  StandingPoll poll({member(1)}, {});
  poll.on_answer(member(1).worker, absl::DeadlineExceededError("silent"));
  poll.on_answer(member(1).worker, says(OfOther::kEvicted, 9, 1));
  EXPECT_FALSE(poll.evicted_by(member(0).worker).has_value());
}

// Silence proves nothing; who is dead is on nobody's side.
TEST(StandingPollTest, SaysWhetherAMemberIsSilent) {
  StandingPoll poll({member(1), member(2)}, {member(3)});
  poll.on_answer(member(3).worker, absl::DeadlineExceededError("silent"));
  poll.on_answer(member(2).worker, absl::NotFoundError("dead"));
  poll.on_answer(member(1).worker, says(OfOther::kEvicted, 1, 1));
  EXPECT_FALSE(poll.has_silent_member());
  StandingPoll other({member(1), member(2)}, {});
  other.on_answer(member(1).worker, says(OfOther::kEvicted, 2, 1));
  other.on_answer(member(2).worker, absl::UnavailableError("busy"));
  EXPECT_TRUE(other.has_silent_member());
}

}  // namespace
}  // namespace sinew::internal
