// Several addresses where workers look for the job.

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/tests/rpc/membership_world.h"

namespace sinew::internal {
namespace {

constexpr char kFirst[] = "at:seed1";
constexpr char kSecond[] = "at:seed2";

Rendezvous seeded(bool founds, int world_size = 0, int rank = -1) {
  return {Rendezvous::Kind::kTcp, {kFirst, kSecond}, "", rank, world_size, founds};
}

TEST(SeedsTest, TheJobIsFoundAtWhicheverSeedAMemberIs) {
  for (const char* seed : {kFirst, kSecond}) {
    MembershipWorld world;
    Worker& founder = world.add_at_seed(seed, "founder", seeded(true));
    world.advance(seconds(2));
    ASSERT_EQ(founder.outcome(), "ok");
    Worker& actor = world.add("actor", seeded(false));
    world.advance(seconds(1));
    EXPECT_EQ(actor.outcome(), "ok") << seed;
    EXPECT_EQ(actor.names(), (Names{"founder", "actor"}));
  }
}

// The reason to have several.
TEST(SeedsTest, WorkersJoinThroughAnotherSeedWhileTheFounderIsDead) {
  MembershipWorld world;
  Worker& founder = world.add_at_seed(kFirst, "founder", seeded(true, 0, 0));
  world.advance(seconds(2));
  Worker& actor = world.add_at_seed(kSecond, "actor", seeded(false));
  world.advance(seconds(2));
  ASSERT_EQ(actor.outcome(), "ok");
  world.lose(founder);
  world.advance(seconds(1));
  Worker& late = world.add("late", seeded(false));
  world.advance(seconds(2));
  EXPECT_EQ(late.outcome(), "ok");
  Worker& again = world.add_at_seed(kFirst, "founder", seeded(true, 0, 0));
  world.advance(seconds(5));
  EXPECT_EQ(again.outcome(), "ok");
  EXPECT_EQ(again.info().rank, 0);
  for (Worker* worker : {&actor, &late, &again}) {
    EXPECT_EQ(worker->names(), (Names{"founder", "actor", "late"}));
    EXPECT_TRUE(worker->warnings.empty());
  }
}

// Nobody answers at any seed, so the founder waits to be called.
TEST(SeedsTest, AFounderIsCalledInAtEitherSeed) {
  for (const char* seed : {kFirst, kSecond}) {
    MembershipWorld world;
    Worker& founder = world.add_at_seed(kFirst, "founder", seeded(true));
    world.advance(seconds(2));
    Worker& actor = world.add("actor", seeded(false));
    world.advance(seconds(2));
    ASSERT_EQ(actor.outcome(), "ok");
    world.lose(founder);
    world.advance(seconds(1));
    Worker& again = world.add_at_seed(seed, "again", seeded(true));
    world.advance(seconds(5));
    EXPECT_EQ(again.outcome(), "ok");
    EXPECT_EQ(actor.names(), again.names()) << seed;
    EXPECT_EQ(again.names().size(), 2u);
  }
}

TEST(SeedsTest, OfTwoFoundersTheOneAtTheFirstSeedFounds) {
  for (const bool first_comes_first : {false, true}) {
    MembershipWorld world;
    Worker& one = world.add_at_seed(first_comes_first ? kFirst : kSecond, "one", seeded(true));
    world.advance(milliseconds(500));
    Worker& two = world.add_at_seed(first_comes_first ? kSecond : kFirst, "two", seeded(true));
    world.advance(seconds(10));
    ASSERT_EQ(one.outcome(), "ok");
    ASSERT_EQ(two.outcome(), "ok");
    EXPECT_EQ((first_comes_first ? one : two).info().rank, 0);
    EXPECT_EQ(one.names(), two.names());
    EXPECT_EQ(one.names().size(), 2u);
    EXPECT_TRUE(one.warnings.empty() && two.warnings.empty());
  }
}

TEST(SeedsTest, AFounderDoesNotWaitForOneThatDies) {
  MembershipWorld world;
  Worker& first = world.add_at_seed(kFirst, "first", seeded(true));
  Worker& second = world.add_at_seed(kSecond, "second", seeded(true));
  world.advance(milliseconds(800));
  EXPECT_EQ(second.outcome(), "pending");
  world.lose(first);
  world.advance(seconds(4));
  EXPECT_EQ(second.outcome(), "ok");
  EXPECT_EQ(second.names(), Names{"second"});
}

// Two founders that could not see each other.
TEST(SeedsTest, SeedsOfTwoJobsLetNobodyInAndSaySo) {
  MembershipWorld world;
  world.network.cut(kFirst, kSecond);
  world.is_down = true;
  Worker& one = world.add_at_seed(kFirst, "one", seeded(true));
  Worker& two = world.add_at_seed(kSecond, "two", seeded(true));
  world.advance(seconds(2));
  ASSERT_EQ(one.outcome(), "ok");
  ASSERT_EQ(two.outcome(), "ok");
  Worker& actor = world.add("actor", seeded(false), seconds(5));
  world.advance(seconds(6));
  ASSERT_NE(actor.outcome(), "ok");
  EXPECT_EQ(actor.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(actor.outcome().find("the job has been founded twice: who answers at 'at:seed1'"),
            std::string::npos)
      << actor.outcome();
  ASSERT_EQ(actor.warnings.size(), 1u);
  EXPECT_NE(actor.warnings[0].find("founded twice"), std::string::npos);
}

TEST(SeedsTest, ASilentSeedHoldsNobodyUp) {
  MembershipWorld world;
  Worker& founder = world.add_at_seed(kSecond, "founder", seeded(true));
  world.advance(seconds(2));
  ASSERT_EQ(founder.outcome(), "ok");
  world.network.silence(kFirst);
  Worker& actor = world.add("actor", seeded(false));
  world.advance(seconds(1));
  EXPECT_EQ(actor.outcome(), "ok");
}

TEST(SeedsTest, TheErrorNamesAllSeeds) {
  MembershipWorld world;
  Worker& alone = world.add("alone", seeded(false), seconds(5));
  world.advance(seconds(6));
  EXPECT_EQ(alone.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(alone.outcome().find("a member at 'at:seed1' or 'at:seed2' never answered"),
            std::string::npos)
      << alone.outcome();
  EXPECT_NE(alone.outcome().find("'at:seed2' said: "), std::string::npos) << alone.outcome();
}

TEST(SeedsTest, AFixedWorldMeetsAtTheSeedOfItsRankZero) {
  MembershipWorld world;
  Worker& b = world.add("b", seeded(false, 3, 1));
  world.advance(seconds(2));
  Worker& a = world.add_at_seed(kSecond, "a", seeded(true, 3, 0));
  Worker& c = world.add("c", seeded(false, 3, 2));
  world.advance(seconds(3));
  for (Worker* worker : {&a, &b, &c}) {
    EXPECT_EQ(worker->outcome(), "ok");
    EXPECT_EQ(worker->names(), (Names{"a", "b", "c"}));
  }
  world.lose(a);
  world.advance(seconds(2));
  Worker& again = world.add_at_seed(kFirst, "a", seeded(true, 3, 0));
  world.advance(seconds(5));
  EXPECT_EQ(again.outcome(), "ok");
  EXPECT_EQ(b.names(), (Names{"a", "b", "c"}));
}

}  // namespace
}  // namespace sinew::internal
