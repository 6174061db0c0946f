#include "sinew/rpc/membership/ballot.h"

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

using ::testing::ElementsAre;

/// A member of each of those ranks, whose incarnation is its rank and one.
MemberView view(std::uint64_t version, std::initializer_list<std::int32_t> ranks) {
  MemberView made{version, 8, {}};
  for (const std::int32_t rank : ranks) {
    const WorkerInfo worker{std::string(1, static_cast<char>('a' + rank)),
                            rank,
                            {static_cast<std::uint64_t>(rank) + 1}};
    made.members.push_back({worker, "at:" + worker.name});
  }
  return made;
}

Incarnation member(std::uint64_t rank) { return {rank + 1}; }

std::set<Incarnation> members(std::initializer_list<std::uint64_t> ranks) {
  std::set<Incarnation> made;
  for (const std::uint64_t rank : ranks) made.insert(member(rank));
  return made;
}

TEST(Support, IsThatOfMoreThanHalfOrOfHalfWithTheLowestRank) {
  const MemberView four = view(1, {0, 1, 2, 3});
  EXPECT_EQ(support_of(four, members({1, 2, 3}), {}), Support::kMajority);
  EXPECT_EQ(support_of(four, members({0, 3}), {}), Support::kHalf);
  EXPECT_EQ(support_of(four, members({1, 2}), {}), Support::kNotEnough);
  EXPECT_EQ(support_of(four, members({0}), {}), Support::kNotEnough);
}

TEST(Support, DeadMembersDoNotCount) {
  const MemberView four = view(1, {0, 1, 2, 3});
  EXPECT_EQ(support_of(four, members({1, 2}), members({0})), Support::kMajority);
  EXPECT_EQ(support_of(four, members({1}), members({0, 3})), Support::kHalf) << "1 is the lowest";
  EXPECT_EQ(support_of(four, members({2}), members({0, 3})), Support::kNotEnough);
  EXPECT_EQ(support_of(four, {}, members({0, 1, 2, 3})), Support::kMajority)
      << "nobody is left to decide otherwise";
}

struct Voter : Ballot {
  explicit Voter(std::uint64_t rank, const MemberView& in_force) : Ballot(member(rank)) {
    on_view(in_force);
  }
};

TEST(Ballot, EachVotesOncePerTerm) {
  Voter voter(2, view(5, {0, 1, 2}));
  EXPECT_TRUE(voter.vote(1, 5));
  EXPECT_FALSE(voter.vote(1, 5)) << "also for somebody else";
  EXPECT_TRUE(voter.vote(2, 5));
  EXPECT_FALSE(voter.vote(1, 9)) << "an earlier term";
}

TEST(Ballot, NobodyVotesForWhoKnowsLess) {
  Voter voter(2, view(5, {0, 1, 2}));
  ASSERT_TRUE(voter.accept(view(6, {1, 2})));
  EXPECT_FALSE(voter.vote(1, 5));
  EXPECT_TRUE(voter.vote(1, 6));
}

TEST(Ballot, WhoHasVotedAcceptsNothingOfAnEarlierTerm) {
  Voter voter(2, view(5, {0, 1, 2}));
  ASSERT_TRUE(voter.vote(1, 5));
  EXPECT_FALSE(voter.accept(view(6, {0, 2})));
  EXPECT_TRUE(voter.accept(view(first_version_of(1), {1, 2})));
  EXPECT_FALSE(voter.vote(1, first_version_of(1))) << "it follows that term's coordinator";
}

TEST(Ballot, ACandidateNeedsEnoughOfTheListInForce) {
  Voter candidate(1, view(5, {0, 1, 2, 3, 4}));
  const std::uint64_t term = candidate.stand();
  EXPECT_EQ(term, 1u);
  candidate.on_vote(term, member(2));
  EXPECT_EQ(candidate.support(), Support::kNotEnough);
  EXPECT_THAT(candidate.silent(), ElementsAre("a", "d", "e"));
  candidate.on_vote(term - 1, member(3));  // late
  EXPECT_EQ(candidate.support(), Support::kNotEnough);
  candidate.on_dead(member(0));
  EXPECT_EQ(candidate.support(), Support::kHalf) << "of four, with the lowest";
  candidate.on_vote(term, member(3));
  EXPECT_EQ(candidate.support(), Support::kMajority);
}

TEST(Ballot, AndOfWhatMayHaveBeenDecidedSince) {
  // The coordinator, which is gone, has let two others in; this worker has accepted that.
  Voter candidate(1, view(5, {0, 1, 2}));
  ASSERT_TRUE(candidate.accept(view(6, {0, 1, 2, 3, 4})));
  const std::uint64_t term = candidate.stand();
  candidate.on_vote(term, member(2));
  EXPECT_EQ(candidate.support(), Support::kNotEnough) << "0, 3 and 4 may go on without it";
  candidate.on_vote(term, member(4));
  EXPECT_EQ(candidate.support(), Support::kMajority);
}

TEST(Ballot, ACandidateTakesOverWhatAVoterHasAccepted) {
  Voter candidate(1, view(5, {0, 1, 2}));
  candidate.learn(view(6, {0, 1, 2, 3}));
  candidate.learn(view(4, {0, 1}));
  EXPECT_EQ(candidate.latest().version, 6u);
}

// Versions have 32 bits for terms.
TEST(Ballot, TermsThatAreMadeUpDoNotUseThemUp) {
  Voter worker(1, view(5, {0, 1, 2}));
  EXPECT_FALSE(worker.vote(kLastTerm + 1, 5));
  worker.learn(view(first_version_of(kMostTermsMissed + 1), {1, 2}));
  EXPECT_EQ(worker.latest().version, 5u);
  worker.learn(view(first_version_of(kMostTermsMissed), {1, 2}));
  EXPECT_EQ(worker.latest().version, first_version_of(kMostTermsMissed));
  EXPECT_TRUE(worker.vote(kLastTerm, worker.latest().version));
}

TEST(Ballot, AListIsDecidedByTheOneBeforeAndByItself) {
  Voter coordinator(0, view(5, {0, 1, 2, 3, 4}));
  coordinator.propose(view(6, {0, 1}));
  EXPECT_EQ(coordinator.acceptance(), Support::kNotEnough);
  coordinator.on_accepted(6, member(1));
  EXPECT_EQ(coordinator.acceptance(), Support::kNotEnough) << "2 of the 5";
  coordinator.on_accepted(5, member(2));  // of another proposal
  EXPECT_EQ(coordinator.acceptance(), Support::kNotEnough);
  coordinator.on_accepted(6, member(2));
  EXPECT_EQ(coordinator.acceptance(), Support::kMajority);
  coordinator.on_view(view(6, {0, 1}));
  EXPECT_EQ(coordinator.acceptance(), Support::kNotEnough) << "nothing is proposed";
}

TEST(Ballot, WhoJoinsAcceptsTheListThatLetsItIn) {
  Voter coordinator(1, view(5, {1}));
  coordinator.propose(view(6, {0, 1, 2}));
  EXPECT_EQ(coordinator.acceptance(), Support::kMajority);
}

TEST(Ballot, ALaterProposalTakesThePlaceOfTheOneBefore) {
  Voter coordinator(0, view(5, {0, 1, 2}));
  coordinator.propose(view(6, {0, 1}));
  coordinator.on_accepted(6, member(1));
  coordinator.propose(view(7, {0, 1, 3}));
  EXPECT_FALSE(coordinator.has_accepted(member(1)));
}

}  // namespace
}  // namespace sinew::internal
