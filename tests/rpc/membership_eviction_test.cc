// Who is out knows it: two members that lost each other may both live.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/rpc/membership_world.h"

namespace sinew::internal {
namespace {

class Eviction : public ::testing::TestWithParam<Trio::Kind> {
 protected:
  using Workers = std::vector<Worker*>;

  /// Nobody of `ones` and nobody of `others` sees each other any more, and both sides notice.
  static void split(MembershipWorld& world, const Workers& ones, const Workers& others) {
    world.is_down = true;
    for (Worker* one : ones) {
      for (Worker* other : others) world.part(*one, *other);
    }
    world.advance(seconds(5));
  }
  /// `worker` stops, for longer than the lease: the others take it for lost.
  static void stop(MembershipWorld& world, Worker& worker, const Workers& others) {
    world.stopped.insert(worker.plane.address());
    for (Worker* other : others) {
      world.network.cut(worker.plane.address(), other->plane.address());
      MembershipWorld::suspect(*other, worker.info());
    }
    world.advance(seconds(3));
  }
  /// It goes on, and sees that its leases are over.
  static void go_on(MembershipWorld& world, Worker& worker, const Workers& others) {
    world.stopped.erase(worker.plane.address());
    for (Worker* other : others) MembershipWorld::suspect(worker, other->info());
    world.advance(seconds(3));
  }
  static void expect_members(const Workers& workers, const Names& names) {
    for (Worker* worker : workers) {
      EXPECT_EQ(worker->state(), MembershipState::kMember) << worker->info().name;
      EXPECT_EQ(worker->names(), names) << worker->info().name;
      EXPECT_EQ(worker->removed, "");
    }
  }
  static void expect_evicted(Worker& worker) {
    EXPECT_EQ(worker.state(), MembershipState::kEvicted) << worker.info().name;
    EXPECT_NE(worker.removed.find("'" + worker.info().name + "' was evicted from the job"),
              std::string::npos)
        << worker.removed;
  }
};

TEST_P(Eviction, AMemberThatWasStoppedIsToldWhenItGoesOn) {
  Trio world(GetParam());
  stop(world, world.b, {&world.a, &world.c});
  expect_members({&world.a, &world.c}, {"a", "c"});
  EXPECT_EQ(world.b.state(), MembershipState::kMember) << "it cannot know";
  go_on(world, world.b, {&world.a});
  expect_evicted(world.b);
  expect_members({&world.a, &world.c}, {"a", "c"});
  // For whoever takes its place.
  Names known;
  for (const Contact& contact : world.b.membership->contacts()) {
    known.push_back(contact.name + " " + contact.address);
  }
  EXPECT_THAT(known, ::testing::UnorderedElementsAre("a " + world.a.plane.address(),
                                                     "c " + world.c.plane.address()));
}

TEST_P(Eviction, ACoordinatorThatWasStoppedIsToldWhenItGoesOn) {
  Trio world(GetParam());
  stop(world, world.a, {&world.b, &world.c});
  expect_members({&world.b, &world.c}, {"b", "c"});
  go_on(world, world.a, {&world.b, &world.c});
  expect_evicted(world.a);
  expect_members({&world.b, &world.c}, {"b", "c"});
  EXPECT_EQ(world.c.membership->coordinator().name, "b");
}

// It has nothing to say to anybody, so it notices nothing.
TEST_P(Eviction, WhoGoesOnWithoutASoundIsToldByTheCoordinator) {
  Trio world(GetParam());
  stop(world, world.c, {&world.a, &world.b});
  world.stopped.clear();
  world.advance(seconds(3));
  expect_evicted(world.c);
  expect_members({&world.a, &world.b}, {"a", "b"});
}

TEST_P(Eviction, WhenTwoSidesMeetTheLargerOneStays) {
  Trio world(GetParam());
  split(world, {&world.a}, {&world.b, &world.c});
  if (GetParam() == Trio::Kind::kOpen) {
    expect_members({&world.a}, {"a"});
  } else {
    // Two of three decide, one does not.
    EXPECT_EQ(world.a.names(), (Names{"a", "b", "c"}));
  }
  expect_members({&world.b, &world.c}, {"b", "c"});
  world.is_down = false;
  world.advance(seconds(4));
  expect_evicted(world.a);
  expect_members({&world.b, &world.c}, {"b", "c"});
}

TEST_P(Eviction, TheLargerSideStaysWhereverTheOldCoordinatorIs) {
  Trio world(GetParam());
  split(world, {&world.a, &world.c}, {&world.b});
  world.is_down = false;
  world.advance(seconds(4));
  expect_evicted(world.b);
  expect_members({&world.a, &world.c}, {"a", "c"});
}

TEST_P(Eviction, OfTwoThatLostEachOtherAloneTheOneOfHigherRankIsEvicted) {
  Trio world(GetParam());
  world.part(world.a, world.b);  // and can be reached all the time
  world.advance(seconds(5));
  expect_evicted(world.b);
  expect_members({&world.a, &world.c}, {"a", "c"});
}

TEST_P(Eviction, WhoDiesWhileItIsAskedIsLost) {
  Trio world(GetParam());
  stop(world, world.b, {&world.a, &world.c});
  world.stopped.clear();
  world.lose(world.b);
  world.advance(seconds(5));
  const int before = world.questions;
  world.advance(seconds(60));
  EXPECT_EQ(world.questions, before) << "nobody is asked who is gone for certain";
  expect_members({&world.a, &world.c}, {"a", "c"});
}

TEST_P(Eviction, WhoLivesIsSuspectedForAMomentOnly) {
  Trio world(GetParam());
  world.is_down = true;
  MembershipWorld::suspect(world.a, world.b.info());
  world.run();
  EXPECT_EQ(world.a.state(), MembershipState::kSuspected);
  EXPECT_EQ(world.a.names().size(), 3u) << "it is asked first";
  world.advance(seconds(2));
  EXPECT_EQ(world.a.state(), MembershipState::kMember);
  EXPECT_EQ(world.a.names(), (Names{"a", "c"}));
}

// It has met nobody when it stops, so that no lease ends.
TEST_P(Eviction, WhoTheCoordinatorNeverMetIsTakenOffTheListToo) {
  Trio world(GetParam());
  world.unlinked.insert(world.c.info().incarnation);
  world.stopped.insert(world.c.plane.address());
  world.advance(seconds(12));
  expect_members({&world.a, &world.b}, {"a", "b"});
}

TEST_P(Eviction, OneMembersWordTakesNobodyOffTheList) {
  Trio world(GetParam());
  world.b.membership->on_worker_lost(world.c.info());  // which answers the coordinator's beats
  world.advance(seconds(12));
  EXPECT_EQ(world.a.names(), (Names{"a", "b", "c"}));
  world.unlinked.insert(world.c.info().incarnation);  // or its question
  world.advance(seconds(12));
  EXPECT_EQ(world.a.names(), (Names{"a", "b", "c"}));
}

// They never talk again.
TEST_P(Eviction, OfTwoThatLostEachOtherAloneTheOneOfHigherRankGoes) {
  Trio world(GetParam());
  world.part(world.b, world.c);
  world.advance(seconds(5));
  expect_evicted(world.c);
  expect_members({&world.a, &world.b}, {"a", "b"});
}

// It goes on when the others have just noticed: all find each other alive.
TEST_P(Eviction, WhoWasStoppedForAboutALeaseTakesNobodyIn) {
  Trio world(GetParam());
  world.part(world.a, world.b);
  world.part(world.a, world.c);
  const bool fixed = GetParam() == Trio::Kind::kFixed;
  Worker& late = world.add("late", fixed ? MembershipWorld::fixed(0, 3) : MembershipWorld::open(7));
  world.advance(milliseconds(100));
  EXPECT_EQ(late.outcome(), "pending");
  world.advance(seconds(3));
  expect_evicted(world.a);
  expect_members({&world.b, &world.c}, {"b", "c"});
}

// One of the two is slow to answer.
TEST_P(Eviction, WhoHearsThatItIsOutTakesNobodyForLost) {
  Trio world(GetParam());
  stop(world, world.a, {&world.b, &world.c});
  world.stopped.insert(world.c.plane.address());
  go_on(world, world.a, {&world.b, &world.c});
  world.advance(seconds(5));
  expect_evicted(world.a);
  EXPECT_EQ(world.a.events, (Names{"+b", "+c"}));
}

// It goes on at the address where new workers look for the job.
TEST_P(Eviction, WhoMayBeOutTakesNobodyIn) {
  Trio world(GetParam());
  stop(world, world.a, {&world.b, &world.c});
  const bool fixed = GetParam() == Trio::Kind::kFixed;
  world.stopped.erase(world.a.plane.address());
  for (Worker* other : {&world.b, &world.c}) MembershipWorld::suspect(world.a, other->info());
  Worker& late = world.add("late", fixed ? MembershipWorld::fixed(0, 3) : MembershipWorld::open(7));
  world.advance(seconds(3));
  expect_evicted(world.a);
  expect_members({&world.b, &world.c}, {"b", "c"});
  EXPECT_EQ(late.outcome(), "pending");
}

// Nobody of either side has ever heard of anybody of the other one: the one whom both knew is dead.
TEST(Sides, StrangersOfOneJobMeetWhereWorkersLookForIt) {
  Trio world(Trio::Kind::kOpen);
  world.lose(world.c);
  world.is_down = true;
  world.part(world.a, world.b);
  world.advance(seconds(3));
  Worker& late = world.add("late", MembershipWorld::open());
  world.advance(seconds(3));
  ASSERT_EQ(late.names(), (Names{"a", "late"}));
  world.lose(world.a);
  world.advance(seconds(3));
  ASSERT_EQ(late.names(), (Names{"late"}));
  ASSERT_EQ(world.b.names(), (Names{"b"}));
  // Whichever of the two calls it in.
  Worker& again = world.add("a", MembershipWorld::open(0));
  world.advance(seconds(3));
  ASSERT_EQ(again.names().size(), 2u);
  world.is_down = false;
  world.advance(seconds(5));
  const bool late_is_in = again.names() == Names{"a", "late"};
  Worker& in = late_is_in ? late : world.b;
  Worker& out = late_is_in ? world.b : late;
  EXPECT_EQ(out.state(), MembershipState::kEvicted);
  EXPECT_NE(out.removed.find("worker 'a', which others find where workers look for the job, "
                             "and 1 more are the larger side"),
            std::string::npos)
      << out.removed;
  for (Worker* worker : {&in, &again}) {
    EXPECT_EQ(worker->state(), MembershipState::kMember);
    EXPECT_EQ(worker->names().size(), 2u);
  }
}

TEST_P(Eviction, ALieRemovesNobody) {
  Trio world(GetParam());
  Standing claim;
  claim.of_other = Standing::OfOther::kEvicted;
  claim.members = 1000;
  for (const WorkerInfo& liar : {world.c.info(), WorkerInfo{"stranger", 9, {99}}}) {
    for (Worker* worker : {&world.a, &world.b}) worker->membership->on_asked(liar, "", claim);
    world.advance(seconds(3));
    expect_members({&world.a, &world.b, &world.c}, {"a", "b", "c"});
  }
  const Standing told = world.a.membership->on_asked({"stranger", 9, {99}}, "", Standing());
  EXPECT_EQ(told.of_other, Standing::OfOther::kUnknown);
}

TEST_P(Eviction, WhoWasEvictedMayJoinAgainAsSomebodyNew) {
  Trio world(GetParam());
  stop(world, world.c, {&world.a, &world.b});
  go_on(world, world.c, {&world.a});
  expect_evicted(world.c);
  const Rendezvous again =
      GetParam() == Trio::Kind::kFixed ? MembershipWorld::fixed(2, 3) : MembershipWorld::open();
  Worker& next = world.add("c", again);
  world.advance(seconds(5));
  EXPECT_EQ(next.outcome(), "ok");
  expect_members({&world.a, &world.b, &next}, {"a", "b", "c"});
}

TEST_P(Eviction, WhoHasLeftIsNotAskedAfter) {
  Trio world(GetParam());
  const Future<void> left = world.c.membership->leave_async(seconds(5));
  world.advance(seconds(3));
  ASSERT_TRUE(left.done());
  EXPECT_EQ(world.c.state(), MembershipState::kLeft);
  const int before = world.questions;
  world.advance(seconds(10));
  EXPECT_EQ(world.questions, before);
  EXPECT_EQ(world.a.membership->on_asked(world.c.info(), "", Standing()).of_other,
            Standing::OfOther::kLeft);
}

INSTANTIATE_TEST_SUITE_P(In, Eviction, ::testing::Values(Trio::Kind::kOpen, Trio::Kind::kFixed),
                         [](const auto& each) {
                           return each.param == Trio::Kind::kOpen ? "Open" : "Fixed";
                         });

}  // namespace
}  // namespace sinew::internal
