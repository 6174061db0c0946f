#include "sinew/tests/registry/support/table_fixture.h"

namespace sinew::internal::registry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RosterTest : public TableTest {};

TEST_F(RosterTest, NobodyIsAdmittedInTheFirstSecond) {
  const Effects effects = join(1);
  ASSERT_NE(sent<Wait>(effects, 1), nullptr);
  EXPECT_FALSE(is_in(1));
  settle();
  EXPECT_TRUE(is_in(1));
  ASSERT_NE(sent<List>(ticked, 1), nullptr);
  EXPECT_EQ(sent<List>(ticked, 1)->members.size(), 1U);
}

TEST_F(RosterTest, AWorldBeginsWithAllAndAtOnce) {
  begin(options(2));
  const Effects first = join(1, 1);
  EXPECT_NE(sent<Wait>(first, 1)->why.find("nobody"), 0U);
  settle();
  EXPECT_FALSE(is_in(1));
  EXPECT_NE(sent<Wait>(join(1, 1), 1)->why.find("ranks: 0"), std::string::npos);
  join(2);
  EXPECT_TRUE(is_in(1));
  EXPECT_EQ(rank_of(2), 0);
}

TEST_F(RosterTest, TwoOfOneRankDoNotMakeAWorld) {
  begin(options(2));
  join(1, 1);
  join(2, 1);
  settle();
  EXPECT_FALSE(is_in(1));
  join(3, 0);
  EXPECT_TRUE(is_in(1) && is_in(3));
  EXPECT_FALSE(is_in(2));
}

TEST_F(RosterTest, ATakenNameIsRefusedOnceItsHolderHasLivedSince) {
  settle();
  join(1);
  const std::uint64_t before = last.back().token;
  const Effects effects = join(2, -1, "w1");
  EXPECT_NE(sent<Probe>(effects, 1), nullptr);
  // Sent before the question came: it may have died since.
  EXPECT_EQ(sent<Refused>(ask(1, Renew{}, before), 2), nullptr);
  EXPECT_EQ(table.roster().waiting(), 1U);
  const Refused* refused = sent<Refused>(ask(1, Renew{}, effects.back().token), 2);
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->why.message(),
            "name 'w1' is already used by rank 0, which is alive; choose another name");
}

TEST_F(RosterTest, ATakenNameIsFreeWhenItsHolderIsLost) {
  settle();
  join(1);
  join(2, -1, "w1");
  table.ended({1}, "its process has ended", now);
  pass(kTick);
  EXPECT_TRUE(is_in(2));
  EXPECT_FALSE(is_in(1));
}

TEST_F(RosterTest, WhoIsSilentForALeaseIsLostAndToldSo) {
  settle();
  join(1);
  join(2);
  pass(kLease - kTick, {1});
  EXPECT_TRUE(is_in(2));
  pass(2 * kTick, {1});
  EXPECT_FALSE(is_in(2));
  const Effects effects = ask(2, Renew{});
  ASSERT_NE(sent<Out>(effects, 2), nullptr);
  EXPECT_EQ(sent<Out>(effects, 2)->why, Gone::kSilent);
}

TEST_F(RosterTest, AStoppedRegistrarLosesNobody) {
  settle();
  join(1);
  now += seconds(100);
  table.tick(now);
  EXPECT_TRUE(is_in(1));
  now -= seconds(50);
  table.tick(now);
  pass(kLease - 3 * kTick);
  EXPECT_TRUE(is_in(1));
}

TEST_F(RosterTest, OneWordOfALossIsNotEnough) {
  settle();
  for (std::uint64_t who = 1; who <= 3; ++who) join(who);
  ask(1, Report{{2}, ""});
  pass(seconds(2), {1, 2, 3});
  EXPECT_TRUE(is_in(1) && is_in(2));
  ask(2, Report{{1}, ""});
  pass(seconds(2), {1, 2, 3});
  EXPECT_TRUE(is_in(1));
  EXPECT_FALSE(is_in(2));
}

TEST_F(RosterTest, AWordThatTheOtherOneDoesNotConfirmPutsOffWhoHasSaidIt) {
  settle();
  for (std::uint64_t who = 1; who <= 4; ++who) join(who);
  ask(2, Report{{3}, ""});
  pass(kLease - seconds(1), {1, 2, 3, 4});
  EXPECT_TRUE(is_in(2) && is_in(3));
  pass(seconds(2), {1, 2, 3, 4});
  EXPECT_FALSE(is_in(2));
  EXPECT_TRUE(is_in(1) && is_in(3) && is_in(4));
}

TEST_F(RosterTest, WhomMostHaveLostGoesAlsoIfItDoesNotSayTheSame) {
  settle();
  for (std::uint64_t who = 1; who <= 5; ++who) join(who);
  for (const std::uint64_t who : {1, 2, 4}) ask(who, Report{{3}, ""});
  pass(kLease + seconds(1), {1, 2, 3, 4, 5});
  EXPECT_FALSE(is_in(3));
  EXPECT_TRUE(is_in(1) && is_in(2) && is_in(4) && is_in(5));
}

TEST_F(RosterTest, OfTwoTheOneGoesThatHasLostMore) {
  settle();
  for (std::uint64_t who = 1; who <= 4; ++who) join(who);
  const auto lose = [&](std::uint64_t a, std::uint64_t b) {
    ask(a, Report{{b}, ""});
    ask(b, Report{{a}, ""});
    pass(milliseconds(1500), {1, 2, 3, 4});
  };
  // A liar of low rank puts one off, and goes with the second one.
  lose(1, 3);
  EXPECT_FALSE(is_in(3));
  lose(1, 4);
  EXPECT_FALSE(is_in(1));
  EXPECT_TRUE(is_in(4) && is_in(2));
}

TEST_F(RosterTest, EndsOfBothKindsInOneMoment) {
  settle();
  for (std::uint64_t who = 1; who <= 3; ++who) join(who);
  // 1 has rank 0, and is cut off from the two others, who see each other.
  for (const std::uint64_t other : {2, 3}) {
    ask(1, Report{{other}, ""});
    ask(other, Report{{1}, ""});
  }
  pass(milliseconds(1500), {1, 2, 3});
  EXPECT_FALSE(is_in(1));
  EXPECT_TRUE(is_in(2) && is_in(3));
}

// --- Returns ------------------------------------------------------------------------------------

TEST_F(RosterTest, MembersComeBackAndNewcomersWaitForThem) {
  join(9);
  come_back(worker(1, 1), {worker(2, 2)});
  EXPECT_FALSE(is_in(1));
  come_back(worker(2, 2), {worker(1, 1)});
  settle();
  EXPECT_TRUE(is_in(1) && is_in(2) && is_in(9));
  EXPECT_EQ(table.roster().list().instance, instance());
}

TEST_F(RosterTest, WhoIsOnlyNamedKeepsItsPlaceForALease) {
  come_back(worker(1, 1), {worker(2, 2)});
  settle();
  EXPECT_TRUE(is_in(1));
  EXPECT_TRUE(table.roster().list().is_returning);
  join(9, 2);
  EXPECT_FALSE(is_in(9));
  pass(kLease, {1, 9});
  EXPECT_TRUE(is_in(9));
  EXPECT_FALSE(table.roster().list().is_returning);
  EXPECT_EQ(sent<Out>(come_back(worker(2, 2), {}), 2)->why, Gone::kNotReturned);
}

TEST_F(RosterTest, OfTwoOfOneRankTheOneStaysWhomMoreKnow) {
  // B was put off, and does not know it; C has its place, and A knows that.
  come_back(worker(2, 1), {worker(1, 0)});
  come_back(worker(3, 1), {worker(1, 0)}, 9);
  come_back(worker(1, 0), {worker(3, 1)});
  settle();
  EXPECT_TRUE(is_in(1) && is_in(3));
  EXPECT_EQ(sent<Out>(ticked, 2)->why, Gone::kReplaced);
}

TEST_F(RosterTest, OfTwoThatAreEqualTheLaterOneStays) {
  come_back(worker(2, 1), {worker(1, 0)}, 3);
  come_back(worker(3, 1), {worker(1, 0)}, 9);
  settle();
  EXPECT_FALSE(is_in(2) || is_in(3));
  pass(kLease, {2, 3});
  EXPECT_TRUE(is_in(3));
  EXPECT_FALSE(is_in(2));
}

TEST_F(RosterTest, OneLiarIsOneVoice) {
  // It claims to be w2, joined last of all, knows everybody, twice, and comes first.
  WorkerInfo liar{"w2", 2, {66}};
  come_back(liar, {liar, liar, worker(1, 1), worker(3, 3), worker(3, 3)}, ~std::uint64_t{0});
  for (std::uint64_t who = 1; who <= 3; ++who) {
    std::vector<WorkerInfo> known;
    for (std::uint64_t other = 1; other <= 3; ++other)
      known.push_back(worker(other, static_cast<std::int32_t>(other)));
    come_back(worker(who, static_cast<std::int32_t>(who)), known);
  }
  settle();
  pass(kLease, {1, 2, 3, 66});
  EXPECT_TRUE(is_in(1) && is_in(2) && is_in(3));
  EXPECT_FALSE(is_in(66));
}

TEST_F(RosterTest, TheInstanceThatMoreHaveBroughtGoesOn) {
  Return lie{{worker(6, 6), ""}, "job", 0, {0, 99, 99}, {1, {7}, 5}, {1, {7}, 1}, {}};
  ask(6, lie);
  come_back(worker(1, 1), {});
  come_back(worker(2, 2), {});
  settle();
  pass(kTick);
  EXPECT_TRUE(is_in(1) && is_in(2));
  EXPECT_FALSE(is_in(6));
  // And of another start of the job nobody comes back.
  lie.instance = {1, 1, 1};
  lie.self.worker = worker(7, 7);
  EXPECT_EQ(sent<Out>(ask(7, lie), 7)->why, Gone::kOtherJob);
}

TEST_F(RosterTest, TheOldRegistrarIsNotWaitedFor) {
  come_back(worker(1, 1), {{"learner", 0, {7}}});
  join(9, 0, "learner");
  settle();
  EXPECT_TRUE(is_in(9));
}

TEST_F(RosterTest, EpochsEnd) {
  EXPECT_EQ(sent<Out>(come_back(worker(1, 1), {}, 1, ~std::uint64_t{0}), 1)->why, Gone::kOtherJob);
  come_back(worker(2, 2), {}, 1, kLastEpoch);
  come_back(worker(3, 3), {}, 1, 5);
  settle();
  EXPECT_EQ(table.roster().list().version.epoch, kLastEpoch);
  EXPECT_TRUE(is_in(2) && is_in(3));
}

TEST_F(RosterTest, WhoWasOutOfThisListDoesNotComeBack) {
  come_back(worker(1, 1), {});
  settle();
  ask(1, Leave{});
  EXPECT_NE(sent<Out>(come_back(worker(1, 1), {}), 1), nullptr);
  EXPECT_FALSE(is_in(1));
}

// --- What is asked is checked -------------------------------------------------------------------

TEST_F(RosterTest, ImproperJoinsAreRefused) {
  settle();
  const auto refused = [&](const Join& join) { return sent<Refused>(ask(5, join), 5) != nullptr; };
  Join good{{worker(5), "here"}, "job", 0};
  Join bad = good;
  bad.self.worker.name = "a,b";
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.self.worker.incarnation = {6};
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.self.worker.rank = -2;
  EXPECT_TRUE(refused(bad));
  bad.self.worker.rank = 65536;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.self.details.assign(65537, 'x');
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.world_size = 3;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.job = "other";
  EXPECT_TRUE(refused(bad));
  EXPECT_FALSE(refused(good));
  EXPECT_TRUE(is_in(5));
}

TEST_F(RosterTest, TooManyWhoWaitAreRefused) {
  Options few = options(100);
  few.limits.waiting = 2;
  begin(few);
  join(1);
  join(2);
  EXPECT_EQ(sent<Refused>(join(3), 3)->why.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(RosterTest, AListIsFullAtItsLimit) {
  Options few = options();
  few.limits.members = 2;
  begin(few);
  settle();
  for (std::uint64_t who = 1; who <= 3; ++who) join(who);
  EXPECT_TRUE(is_in(1) && is_in(2));
  EXPECT_FALSE(is_in(3));
  ask(2, Leave{});
  pass(kTick, {1});
  EXPECT_TRUE(is_in(3));
}

// --- Lists --------------------------------------------------------------------------------------

TEST_F(RosterTest, ABeatBringsWhatWasMissed) {
  settle();
  join(1);
  const std::uint64_t count = table.roster().list().version.count;
  join(2);
  join(3);
  const Effects effects = ask(1, Renew{{1, {kRegistrar}, count}});
  ASSERT_NE(sent<Update>(effects, 1), nullptr);
  EXPECT_EQ(sent<Update>(effects, 1)->changes.size(), 2U);
  EXPECT_NE(sent<Renewed>(ask(1, Renew{{1, {kRegistrar}, count + 2}}), 1), nullptr);
  // Of another registrar, or from the future: all.
  EXPECT_NE(sent<List>(ask(1, Renew{{1, {5}, count}}), 1), nullptr);
  EXPECT_NE(sent<List>(ask(1, Renew{{1, {kRegistrar}, ~std::uint64_t{0}}}), 1), nullptr);
}

TEST_F(RosterTest, WhatIsForgottenIsSentAsAWhole) {
  Options few = options();
  few.limits.log = 2;
  begin(few);
  settle();
  join(1);
  const std::uint64_t count = table.roster().list().version.count;
  for (std::uint64_t who = 2; who <= 4; ++who) join(who);
  EXPECT_NE(sent<List>(ask(1, Renew{{1, {kRegistrar}, count}}), 1), nullptr);
}

}  // namespace
}  // namespace sinew::internal::registry
