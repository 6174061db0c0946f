// Who founds a job, and who finds the one that lives.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/membership.pb.h"
#include "sinew/rpc/membership/member_codec.h"
#include "sinew/tests/rpc/membership_world.h"

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;

Rendezvous joins_only(int rank = -1) {
  Rendezvous rendezvous = MembershipWorld::open(rank);
  rendezvous.founds = false;
  return rendezvous;
}

Rendezvous rank_zero_that_never_founds() {
  Rendezvous rendezvous = MembershipWorld::fixed(0, 3);
  rendezvous.founds = false;
  return rendezvous;
}

/// In the place of `a`, which is lost.
void expect_called_in(Trio& world) {
  Worker& again = world.add("a", rank_zero_that_never_founds());
  world.advance(seconds(5));
  EXPECT_EQ(again.outcome(), "ok");
  EXPECT_EQ(again.names(), (Names{"a", "b", "c"}));
}

TEST(FoundingTest, WhoIsNoFounderWaitsForOne) {
  MembershipWorld world;
  Worker& early = world.add("early", joins_only(3), seconds(60));
  world.advance(seconds(20));
  EXPECT_EQ(early.outcome(), "pending");
  Worker& founder = world.add("founder", MembershipWorld::open(0));
  world.advance(seconds(5));
  EXPECT_EQ(founder.outcome(), "ok");
  EXPECT_EQ(early.outcome(), "ok");
  EXPECT_EQ(early.names(), (Names{"founder", "early"}));
  EXPECT_EQ(early.info().rank, 3);
}

TEST(FoundingTest, WithoutAFounderTheErrorSaysWhoThatMightBe) {
  MembershipWorld world;
  Worker& alone = world.add("alone", joins_only(), seconds(5));
  world.advance(seconds(6));
  EXPECT_EQ(alone.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(alone.outcome().find("start the worker that founds the job (rank 0, or one with "
                                 "WorkerOptions::found_job)"),
            std::string::npos)
      << alone.outcome();
}

// The learner dies and comes back at its address.
TEST(FoundingTest, AFounderThatComesBackFindsItsJob) {
  Trio world(Trio::Kind::kOpen);
  world.lose(world.a);
  world.advance(seconds(1));
  EXPECT_EQ(world.b.membership->coordinator().name, "b");
  Worker& again = world.add("a", MembershipWorld::open(0));
  world.advance(seconds(5));
  EXPECT_EQ(again.outcome(), "ok");
  for (Worker* worker : {&world.b, &world.c, &again}) {
    EXPECT_EQ(worker->names(), (Names{"a", "b", "c"}));
    EXPECT_TRUE(worker->warnings.empty());
  }
}

// It is back before the others know that it was gone: they call its predecessor.
TEST(FoundingTest, AFounderWaitsLongerWhereItsPredecessorIsCalled) {
  Trio world(Trio::Kind::kOpen);
  const WorkerInfo before = world.a.info();
  world.network.kill(world.a.plane.address());
  world.dead.insert(before.incarnation);
  world.a.membership.reset();
  Worker& again = world.add("a", MembershipWorld::open(0), seconds(60));
  EXPECT_EQ(again.outcome(), "ok") << "nobody called: it has founded a job of its own";

  Trio other(Trio::Kind::kOpen);
  const WorkerInfo lost = other.a.info();
  other.network.kill(other.a.plane.address());
  other.dead.insert(lost.incarnation);
  other.a.membership.reset();
  Worker& sought = other.add_without_pause("a", MembershipWorld::open(0));
  other.advance(milliseconds(500));
  sought.membership->on_sought();
  other.advance(seconds(2));
  EXPECT_EQ(sought.outcome(), "pending");
  for (Worker* worker : {&other.b, &other.c}) worker->membership->on_worker_lost(lost);
  other.advance(seconds(3));
  EXPECT_EQ(sought.outcome(), "ok");
  EXPECT_EQ(sought.names(), (Names{"a", "b", "c"}));
  EXPECT_EQ(other.b.names(), (Names{"a", "b", "c"}));
}

// Whoever comes while it is dead takes another place.
TEST(FoundingTest, AFounderThatComesBackHasItsRankAgain) {
  Trio world(Trio::Kind::kOpen);
  EXPECT_EQ(world.a.info().rank, 0);
  world.lose(world.a);
  world.advance(seconds(1));
  Worker& actor = world.add_at_rendezvous("actor", joins_only());
  world.advance(seconds(5));
  ASSERT_EQ(actor.outcome(), "ok");
  EXPECT_EQ(actor.info().rank, 3);
  Worker& again = world.add("a", MembershipWorld::open(0));
  world.advance(seconds(5));
  EXPECT_EQ(again.outcome(), "ok");
  EXPECT_EQ(again.info().rank, 0);
}

TEST(FoundingTest, SignsPutTheFoundingOffByHalfTheTimeAtMost) {
  MembershipWorld world;
  Worker& founder = world.add_without_pause("a", MembershipWorld::open(0));
  for (int i = 0; i < 40; ++i) {
    founder.membership->on_sought();
    world.advance(seconds(1));
  }
  EXPECT_EQ(founder.outcome(), "ok");
}

TEST(FoundingTest, AFounderThatHasLittleTimeFoundsSooner) {
  MembershipWorld world;
  Worker& founder = world.add_without_pause("a", MembershipWorld::open(0), seconds(1));
  world.advance(milliseconds(600));
  EXPECT_EQ(founder.outcome(), "ok");
}

TEST(FoundingTest, ARankZeroThatNeverFoundsWaitsToBeCalledIn) {
  Trio world(Trio::Kind::kFixed);
  world.lose(world.a);
  world.advance(seconds(1));
  expect_called_in(world);

  MembershipWorld empty;
  Worker& alone = empty.add("a", rank_zero_that_never_founds(), seconds(5));
  empty.advance(seconds(6));
  EXPECT_EQ(alone.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(alone.outcome().find("never called"), std::string::npos) << alone.outcome();
}

TEST(FoundingTest, WhoIsCalledInExpectsItsCallerByName) {
  Trio world(Trio::Kind::kFixed);
  world.lose(world.a);
  world.advance(seconds(1));
  world.network.cover_names_and(MembershipWorld::kMeetingPlace);
  expect_called_in(world);
}

// By somebody who has been called in, and is no member yet.
TEST(FoundingTest, WhoIsSentOnExpectsTheMemberByName) {
  const auto outcome = [](const std::string& at, const std::string& name) {
    Trio world(Trio::Kind::kOpen);
    world.network.cover_names_and("at:called");
    FakeControlPlane called(world.network, {"called", -1, {98}}, "at:called");
    called.add_control_method("sinew.member.list", [](const WorkerInfo&, const std::string&) {
      return make_ready_future(proto::MemberList().SerializeAsString());
    });
    called.add_control_method("sinew.member.join", [&](const WorkerInfo&, const std::string&) {
      proto::JoinResponse response;
      response.set_ask_at(at);
      response.set_ask_name(name);
      return make_ready_future(response.SerializeAsString());
    });
    Rendezvous rendezvous = joins_only();
    rendezvous.seeds = {"at:called"};
    Worker& joiner = world.add("d", rendezvous, seconds(4));
    world.advance(seconds(5));
    return joiner.outcome();
  };
  EXPECT_EQ(outcome(MembershipWorld::kMeetingPlace, "a"), "ok");
  EXPECT_THAT(outcome(MembershipWorld::kMeetingPlace, ""),
              HasSubstr("no certificate covers 'at:rank0'"));
  EXPECT_THAT(outcome(MembershipWorld::kMeetingPlace, "b"),
              HasSubstr("no certificate covers 'at:rank0'"));
  EXPECT_THAT(outcome(MembershipWorld::kMeetingPlace, "two\nlines"), HasSubstr("at position 3"));
  EXPECT_THAT(outcome(std::string(2000, 'x'), "a"),
              HasSubstr("worker 'a' gives no usable address"));
}

// A member answers at the address: nobody need be called in, until it is gone.
TEST(FoundingTest, NobodyIsCalledInWhileAMemberAnswersThere) {
  Trio world(Trio::Kind::kOpen);
  world.lose(world.a);
  world.advance(seconds(1));
  world.add("a", MembershipWorld::open(7));  // whose list has it behind the others
  Rendezvous last = MembershipWorld::open(9);
  Worker& holder = world.add_at_rendezvous("z", last);
  world.advance(seconds(5));
  ASSERT_EQ(holder.outcome(), "ok");
  const auto invitations = [&] {
    int count = 0;
    for (const std::string& line : world.network.log()) {
      if (line.find("sinew.member.invite") == 0) ++count;
    }
    return count;
  };
  const int before = invitations();
  world.advance(seconds(20));
  EXPECT_LE(invitations(), before + 1);
  world.lose(holder);
  Worker& next = world.add_at_rendezvous("y", last);
  world.advance(seconds(5));
  EXPECT_EQ(next.outcome(), "ok");
  EXPECT_EQ(next.names().size(), 4u);
}

TEST(FoundingTest, AJobOfOneSaysSoUntilSomebodyComes) {
  MembershipWorld world;
  Worker& a = world.add("a", MembershipWorld::open(0));
  world.advance(seconds(4));
  EXPECT_TRUE(a.warnings.empty());
  world.advance(seconds(2));
  ASSERT_EQ(a.warnings.size(), 1u);
  EXPECT_EQ(a.warnings[0],
            "worker 'a' has founded job 'job', and nobody has come within 5 s; others join it at "
            "'at:rank0'");
  world.advance(seconds(600));
  EXPECT_EQ(a.warnings.size(), 13u) << "with pauses of 5, 5, 10, 20, 40 and then 60 s";
  Worker& b = world.add("b", joins_only());
  world.advance(seconds(100));
  ASSERT_EQ(b.outcome(), "ok");
  EXPECT_EQ(a.warnings.size(), 13u);
  world.lose(b);
  world.advance(seconds(100));
  EXPECT_EQ(a.warnings.size(), 13u) << "it knows that others may come";
}

TEST(FoundingTest, TwoJobsThatMeetSaySo) {
  MembershipWorld world;
  Worker& a = world.add("a", MembershipWorld::open(0));
  FakeControlPlane other(world.network, {"other", 0, {99}}, "at:other");
  proto::MemberList list;
  list.set_version(7);
  encode(member_at("at:other", {"other", 0, {99}}), *list.add_members());
  for (int i = 0; i < 2; ++i) {
    const Future<std::string> reply = other.control_call_address(
        {"at:rank0", ""}, "sinew.member.invite", list.SerializeAsString(), seconds(5));
    world.advance(seconds(1));
    ASSERT_TRUE(reply.done());
    EXPECT_EQ(to_status(reply.error()).code(), absl::StatusCode::kAlreadyExists);
  }
  ASSERT_EQ(a.warnings.size(), 1u) << "once";
  EXPECT_NE(a.warnings[0].find("two jobs have been founded"), std::string::npos) << a.warnings[0];
  EXPECT_EQ(a.names(), (Names{"a"}));
}

}  // namespace
}  // namespace sinew::internal
