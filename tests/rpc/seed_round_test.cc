#include "sinew/rpc/membership/seed_round.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sinew::internal {
namespace {

using Addresses = std::vector<std::string>;

const JobInstance kOne{0, 1, 1};
const JobInstance kOther{0, 2, 2};
const SeedRound::Greeting kMember{kOne, false};

TEST(SeedRoundTest, MembersComeInTheOrderOfTheSeeds) {
  SeedRound round(2);
  EXPECT_EQ(round.on_resolved(1, Addresses{"b:1"}, "own:1"), Addresses{"b:1"});
  EXPECT_EQ(round.on_resolved(0, Addresses{"a:1", "a:2"}, "own:1"), (Addresses{"a:1", "a:2"}));
  round.on_answer("b:1", kMember);
  round.on_answer("a:2", kMember);
  EXPECT_FALSE(round.is_done());
  round.on_answer("a:1", absl::NotFoundError("nobody is there"));
  EXPECT_TRUE(round.is_done());
  EXPECT_EQ(round.members(), (Addresses{"a:2", "b:1"}));
  EXPECT_EQ(round.asked(), 3u);
  EXPECT_EQ(round.empty(), 1u);
  EXPECT_TRUE(round.conflict().ok());
  EXPECT_EQ(round.failures(), "'a:1' said: nobody is there");
}

TEST(SeedRoundTest, AsksEachAddressOnceAndNeverItself) {
  SeedRound round(2);
  EXPECT_EQ(round.on_resolved(0, Addresses{"a:1", "own:1", "a:1"}, "own:1"), Addresses{"a:1"});
  EXPECT_EQ(round.on_resolved(1, Addresses{"a:1"}, "own:1"), Addresses{});
  EXPECT_EQ(round.on_resolved(1, Addresses{"c:1"}, "own:1"), Addresses{}) << "resolved twice";
  EXPECT_EQ(round.asked(), 1u);
  Addresses many;
  for (int i = 0; i < 100; ++i) many.push_back("h:" + std::to_string(i));
  SeedRound crowd(1);
  EXPECT_EQ(crowd.on_resolved(0, many, "").size(), SeedRound::kMostPerSeed);
}

TEST(SeedRoundTest, AFounderThatWaitsIsNoMember) {
  SeedRound round(1);
  round.on_resolved(0, Addresses{"a:1"}, "");
  round.on_answer("a:1", SeedRound::Greeting{{}, true});
  round.on_answer("a:1", kMember);
  EXPECT_TRUE(round.is_done());
  EXPECT_TRUE(round.members().empty()) << "the first answer counts";
  EXPECT_EQ(round.failures(), "'a:1' waits to found the job");
}

TEST(SeedRoundTest, TwoJobsAreAnError) {
  SeedRound round(2);
  round.on_resolved(0, Addresses{"a:1"}, "");
  round.on_resolved(1, Addresses{"b:1"}, "");
  round.on_answer("a:1", kMember);
  round.on_answer("b:1", SeedRound::Greeting{kOther, false});
  EXPECT_EQ(round.conflict().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(round.conflict().message(),
            "the job has been founded twice: who answers at 'a:1' is in instance 0-1-1 of it, who "
            "answers at 'b:1' in instance 0-2-2; end one of the two");
}

TEST(SeedRoundTest, OneRefusalAmongSeveralSeedsIsNotTheEnd) {
  const absl::Status refusal = absl::PermissionDeniedError("another job");
  SeedRound some(2);
  some.on_resolved(0, Addresses{"a:1"}, "");
  some.on_answer("a:1", refusal);
  EXPECT_TRUE(some.refusal().ok()) << "the other one is not resolved yet";
  some.on_resolved(1, Addresses{"b:1"}, "");
  EXPECT_TRUE(some.refusal().ok()) << "nor has it answered";
  some.on_answer("b:1", absl::NotFoundError("nobody"));
  EXPECT_TRUE(some.refusal().ok());
  SeedRound all(2);
  all.on_resolved(0, Addresses{"a:1"}, "");
  all.on_resolved(1, Addresses{"b:1"}, "");
  all.on_answer("a:1", refusal);
  all.on_answer("b:1", absl::UnauthenticatedError("who are you"));
  EXPECT_EQ(all.refusal(), refusal);
}

TEST(SeedRoundTest, NamesThatNobodyKnows) {
  SeedRound round(2);
  round.on_resolved(0, absl::UnavailableError("the host of x:1 is unknown"), "");
  EXPECT_FALSE(round.is_done());
  round.on_resolved(1, Addresses{"b:1"}, "");
  EXPECT_EQ(round.failures(), "the host of x:1 is unknown; 'b:1' has not answered yet");
  round.on_answer("b:1", kMember);
  EXPECT_TRUE(round.is_done());
  EXPECT_EQ(round.members(), Addresses{"b:1"});
}

}  // namespace
}  // namespace sinew::internal
