#include "sinew/parallel/internal/pass_votes.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"

using sinew::parallel::internal::PassVote;
using sinew::parallel::internal::PassVotes;
using ::testing::HasSubstr;

namespace {

struct Rank {
  PassVote vote;
  std::vector<bool> used;
};

PassVotes votes_of(const std::vector<Rank>& ranks) {
  const int size = static_cast<int>(ranks.size());
  at::Tensor sum;
  for (int rank = 0; rank < size; ++rank) {
    const Rank& one = ranks[static_cast<std::size_t>(rank)];
    const at::Tensor words = PassVotes::words(rank, size, one.vote, one.used);
    sum = sum.defined() ? sum + words : words;
  }
  return PassVotes(size, sum);
}

TEST(PassVotes, AllKeep) {
  const PassVotes votes = votes_of({{{PassVote::Kind::kKeep, 7}, {true, false, false}},
                                    {{PassVote::Kind::kKeep, 7}, {true, true, false}}});
  EXPECT_TRUE(votes.verdict().ok()) << votes.verdict();
  EXPECT_EQ(votes.active(), 2);
  EXPECT_TRUE(votes.used_anywhere(0));
  EXPECT_TRUE(votes.used_anywhere(1));
  EXPECT_FALSE(votes.used_anywhere(2));
}

TEST(PassVotes, RanksWithoutInputsDoNotCount) {
  const PassVotes votes = votes_of({{{PassVote::Kind::kShadow, 0}, {false}},
                                    {{PassVote::Kind::kKeep, 0}, {true}},
                                    {{PassVote::Kind::kShadow, 0}, {false}}});
  EXPECT_TRUE(votes.verdict().ok());
  EXPECT_EQ(votes.active(), 1);
}

// Every combination of what three ranks may say: one rule for all.
TEST(PassVotes, AnyFailureAndAnyDisagreementCounts) {
  const auto kinds = {PassVote::Kind::kKeep, PassVote::Kind::kFailed, PassVote::Kind::kShadow,
                      PassVote::Kind::kThrew, PassVote::Kind::kIncomplete};
  for (const auto a : kinds) {
    for (const auto b : kinds) {
      for (const auto c : kinds) {
        for (int lag = 0; lag < 4; ++lag) {
          std::vector<Rank> ranks = {{{a, 3}, {true}}, {{b, 3}, {true}}, {{c, 3}, {true}}};
          if (lag < 3) --ranks[static_cast<std::size_t>(lag)].vote.kept;
          const absl::Status verdict = votes_of(ranks).verdict();
          bool failed = false;
          for (const Rank& rank : ranks) {
            failed |= rank.vote.kind == PassVote::Kind::kFailed ||
                      rank.vote.kind == PassVote::Kind::kThrew ||
                      rank.vote.kind == PassVote::Kind::kIncomplete;
          }
          const absl::StatusCode expected = lag < 3  ? absl::StatusCode::kFailedPrecondition
                                            : failed ? absl::StatusCode::kAborted
                                                     : absl::StatusCode::kOk;
          EXPECT_EQ(verdict.code(), expected) << verdict;
          EXPECT_EQ(votes_of(ranks).has_failed(), expected == absl::StatusCode::kAborted);
        }
      }
    }
  }
}

TEST(PassVotes, DifferentPassesAreNamed) {
  PassVote first;
  first.module = 2;
  first.first_call = 5;
  first.last_call = 5;
  PassVote second = first;
  second.last_call = 6;
  PassVote third = first;
  third.module = 3;
  const auto verdict_of = [](const PassVote& a, const PassVote& b) {
    return votes_of({{a, {}}, {a, {}}, {b, {}}}).verdict();
  };
  EXPECT_TRUE(verdict_of(first, first).ok());
  for (const PassVote& other : {second, third}) {
    const absl::Status verdict = verdict_of(first, other);
    EXPECT_EQ(verdict.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(
        std::string(verdict.message()),
        HasSubstr("rank 0 those of call 5 of forward() of data-parallel module 2, rank 2 "));
  }
  EXPECT_THAT(std::string(verdict_of(first, second).message()), HasSubstr("calls 5 to 6"));
  // Who has no inputs, or has failed, knows less.
  second.kind = PassVote::Kind::kShadow;
  EXPECT_TRUE(verdict_of(first, second).ok());
  second.kind = PassVote::Kind::kFailed;
  EXPECT_EQ(verdict_of(first, second).code(), absl::StatusCode::kAborted);
}

// A rank whose pass has thrown does not come to say why, so nobody waits for that.
TEST(PassVotes, ReasonsAreAskedForUnlessAPassHasThrown) {
  const Rank whole{{PassVote::Kind::kKeep}, {}};
  const Rank lacking{{PassVote::Kind::kIncomplete}, {}};
  const Rank failed{{PassVote::Kind::kFailed}, {}};
  const Rank thrown{{PassVote::Kind::kThrew}, {}};
  EXPECT_TRUE(votes_of({whole, lacking, failed}).says_why());
  EXPECT_FALSE(votes_of({whole, lacking, thrown}).says_why());
  EXPECT_EQ(votes_of({whole, thrown}).verdict().code(), absl::StatusCode::kAborted);
}

TEST(PassVotes, OneDoubtIsEnough) {
  PassVote sure;
  PassVote doubtful;
  doubtful.doubts = true;
  EXPECT_FALSE(votes_of({{sure, {}}, {sure, {}}}).doubts());
  EXPECT_TRUE(votes_of({{sure, {}}, {doubtful, {}}}).doubts());
}

TEST(PassVotes, ParametersThatAreOthersAreDoubtedOfThoseWhoKeep) {
  PassVote own;
  own.sample = 1;
  PassVote other;
  other.sample = -1;
  EXPECT_FALSE(votes_of({{own, {}}, {own, {}}}).doubts());
  EXPECT_TRUE(votes_of({{own, {}}, {own, {}}, {other, {}}}).doubts());
  other.kind = PassVote::Kind::kShadow;
  EXPECT_FALSE(votes_of({{own, {}}, {other, {}}, {own, {}}}).doubts());
}

TEST(PassVotes, TextsNameRanks) {
  EXPECT_THAT(std::string(votes_of({{{PassVote::Kind::kKeep, 1}, {}},
                                    {{PassVote::Kind::kFailed, 1}, {}},
                                    {{PassVote::Kind::kFailed, 1}, {}}})
                              .verdict()
                              .message()),
              HasSubstr("failed on rank 1, 2"));
  EXPECT_THAT(
      std::string(votes_of({{{PassVote::Kind::kKeep, 5}, {}}, {{PassVote::Kind::kKeep, 4}, {}}})
                      .verdict()
                      .message()),
      HasSubstr("rank 1 has kept the gradients of 4 backward passes, rank 0 those of 5"));
}

TEST(PassVotes, FailuresHaveTheReasonsOfTheirRanks) {
  const Rank keeps{{PassVote::Kind::kKeep}, {}};
  const Rank failed{{PassVote::Kind::kFailed}, {}};
  const Rank incomplete{{PassVote::Kind::kIncomplete}, {}};
  const absl::Status one = votes_of({keeps, failed}).failure({"", "the server is lost"});
  EXPECT_EQ(one.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(one.message()), HasSubstr("failed on rank 1: the server is lost"));
  const absl::Status two =
      votes_of({incomplete, keeps, failed}).failure({"no 'b'", "", "bad\x01 text"});
  EXPECT_EQ(two.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(two.message()),
              HasSubstr("failed on rank 0: no 'b'; on rank 2: bad\\x01 text"));
  EXPECT_EQ(votes_of({incomplete, keeps}).failure({"no 'b'", ""}).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(PassVotes, TheMostCallsOfAnyRankCount) {
  PassVote unsure{PassVote::Kind::kFailed};
  PassVote late;
  late.calls = 6;
  EXPECT_EQ(votes_of({{unsure, {}}, {late, {}}}).calls(), 6);
  EXPECT_EQ(votes_of({{unsure, {}}, {unsure, {}}}).calls(), 0);
}

}  // namespace
