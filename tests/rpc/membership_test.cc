#include "sinew/rpc/membership/peer_membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sinew/membership.pb.h"
#include "sinew/tests/rpc/membership_world.h"

namespace sinew::internal {
namespace {

TEST(MembershipTest, FixedWorldStartsWhenAllAreThere) {
  MembershipWorld world;
  Worker& b = world.add("b", MembershipWorld::fixed(1, 3));
  world.advance(seconds(3));
  Worker& a = world.add("a", MembershipWorld::fixed(0, 3));
  world.advance(seconds(2));
  EXPECT_EQ(a.outcome(), "pending");
  EXPECT_EQ(b.outcome(), "pending");
  EXPECT_FALSE(b.membership->ready());
  Worker& c = world.add("c", MembershipWorld::fixed(2, 3));
  world.advance(seconds(2));
  for (const auto& worker : world.workers) {
    EXPECT_EQ(worker->outcome(), "ok");
    EXPECT_TRUE(worker->membership->ready());
    EXPECT_EQ(worker->names(), (Names{"a", "b", "c"}));
    EXPECT_EQ(worker->membership->coordinator().name, "a");
  }
  EXPECT_EQ(c.info().rank, 2);
  EXPECT_EQ(a.events, (Names{"+b", "+c"}));
  EXPECT_EQ(c.events, (Names{"+a", "+b"}));
}

TEST(MembershipTest, AWorldOfOne) {
  MembershipWorld world;
  Worker& a = world.add("a", MembershipWorld::fixed(0, 1));
  world.run();
  EXPECT_EQ(a.outcome(), "ok");
  const Future<void> left = a.membership->leave_async(seconds(5));
  world.run();
  EXPECT_TRUE(left.done() && left.error() == nullptr);
  EXPECT_FALSE(a.membership->ready());
}

TEST(MembershipTest, MissingRanksAreNamedToAllOfThem) {
  MembershipWorld world;
  Worker& a = world.add("a", MembershipWorld::fixed(0, 4));
  Worker& b = world.add("b", MembershipWorld::fixed(1, 4));
  Worker& d = world.add("d", MembershipWorld::fixed(3, 4));
  world.advance(seconds(59));
  EXPECT_EQ(a.outcome(), "pending");
  world.advance(seconds(2));
  const std::string expected = "3 of 4 workers joined within 60 s; missing ranks: 2";
  EXPECT_EQ(a.outcome(), expected);
  EXPECT_EQ(b.outcome(), expected);
  EXPECT_EQ(d.outcome(), expected);
  EXPECT_EQ(b.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(MembershipTest, AnImpatientWorkerIsToldWhoIsMissing) {
  MembershipWorld world;
  Worker& a = world.add("a", MembershipWorld::fixed(0, 3));
  Worker& b = world.add("b", MembershipWorld::fixed(1, 3), seconds(5));
  world.advance(seconds(6));
  EXPECT_THAT(b.outcome(),
              ::testing::HasSubstr("2 of 3 workers joined within 5 s; missing ranks: 2"));
  Worker& b2 = world.add("b", MembershipWorld::fixed(1, 3));
  world.add("c", MembershipWorld::fixed(2, 3));
  world.advance(seconds(2));
  EXPECT_EQ(a.outcome(), "ok");
  EXPECT_EQ(b2.outcome(), "ok");
  EXPECT_EQ(a.directory.find("b")->worker, b2.info());
}

TEST(MembershipTest, NobodyAnswers) {
  MembershipWorld world;
  Worker& b = world.add("b", MembershipWorld::fixed(1, 2), seconds(10));
  world.advance(seconds(11));
  EXPECT_EQ(b.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(b.outcome(),
              ::testing::HasSubstr(
                  "worker 'b' could not join job 'job' within 10 s: rank 0 at 'at:rank0'"));
  EXPECT_THAT(b.outcome(), ::testing::HasSubstr("last try: 'at:rank0' said: at:rank0 refuses"));
}

TEST(MembershipTest, BlackHoleEndsWithTheDeadline) {
  MembershipWorld world;
  world.network.silence("at:rank0");
  Worker& b = world.add("b", MembershipWorld::fixed(1, 2), seconds(7));
  world.advance(seconds(8));
  EXPECT_THAT(b.outcome(), ::testing::HasSubstr("was not answered in time"));
}

TEST(MembershipTest, DuplicatesAreRefusedAndTheOthersGoOn) {
  MembershipWorld world;
  Worker& a = world.add("a", MembershipWorld::fixed(0, 3));
  Worker& b = world.add("b", MembershipWorld::fixed(1, 3));
  world.run();
  Worker& same_name = world.add("b", MembershipWorld::fixed(2, 3));
  Worker& same_rank = world.add("x", MembershipWorld::fixed(1, 3));
  Worker& as_master = world.add("a", MembershipWorld::fixed(2, 3));
  Worker& wrong_size = world.add("y", MembershipWorld::fixed(2, 4));
  Worker& dynamic = world.add("z", MembershipWorld::open());
  world.advance(seconds(1));
  EXPECT_EQ(same_name.outcome(),
            "name 'b' is already used by rank 1, which is alive; choose another name");
  EXPECT_EQ(same_name.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(same_rank.outcome(), ::testing::HasSubstr("rank 1 is already used by worker 'b'"));
  EXPECT_THAT(as_master.outcome(), ::testing::HasSubstr("name 'a' is already used by rank 0"));
  EXPECT_THAT(wrong_size.outcome(), ::testing::HasSubstr("a fixed world of 4"));
  EXPECT_THAT(dynamic.outcome(), ::testing::HasSubstr("do not mix"));
  Worker& c = world.add("c", MembershipWorld::fixed(2, 3));
  world.advance(seconds(1));
  for (const Worker* worker : {&a, &b, &c}) EXPECT_EQ(worker->outcome(), "ok");
}

TEST(MembershipTest, RestartWhileTheWorldCollects) {
  MembershipWorld world;
  world.add("a", MembershipWorld::fixed(0, 3));
  Worker& b = world.add("b", MembershipWorld::fixed(1, 3));
  world.run();
  // It dies, and nobody has noticed when the new one comes: the coordinator asks the network.
  world.network.kill(b.plane.address());
  world.dead.insert(b.plane.self().incarnation);
  b.membership.reset();
  Worker& b2 = world.add("b", MembershipWorld::fixed(1, 3));
  world.add("c", MembershipWorld::fixed(2, 3));
  world.advance(seconds(2));
  EXPECT_EQ(b2.outcome(), "ok");
  EXPECT_EQ(world.probes, 1);
}

// It has died just now, or is stopped: what has its name waits until that is known.
TEST(MembershipTest, WhoTakesTheNameOfOneThatIsSilentWaits) {
  for (const bool dies : {true, false}) {
    SCOPED_TRACE(dies);
    MembershipWorld world;
    world.add("a", MembershipWorld::open());
    Worker& b = world.add("b", MembershipWorld::open());
    world.advance(seconds(1));
    ASSERT_EQ(b.outcome(), "ok");
    const std::string address = b.plane.address();
    world.stopped.insert(address);
    Worker& b2 = world.add("b", MembershipWorld::open());
    world.advance(seconds(3));
    EXPECT_EQ(b2.outcome(), "pending");
    EXPECT_GT(world.probes, 1) << "it asks again";
    world.stopped.erase(address);
    if (dies) world.lose(b);
    world.advance(seconds(3));
    EXPECT_EQ(
        b2.outcome(),
        dies ? "ok" : "name 'b' is already used by rank 1, which is alive; choose another name");
  }
}

TEST(MembershipTest, WhoWaitsInVainSaysForWhom) {
  MembershipWorld world;
  world.add("a", MembershipWorld::open());
  Worker& b = world.add("b", MembershipWorld::open());
  world.advance(seconds(1));
  world.stopped.insert(b.plane.address());
  Worker& b2 = world.add("b", MembershipWorld::open(), seconds(5));
  world.advance(seconds(7));
  EXPECT_EQ(b2.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(b2.outcome(),
              ::testing::HasSubstr("worker 'b' with rank 1 has that name or rank, and "
                                   "does not answer: it is not known yet whether it "
                                   "lives"));
}

// They name the same set when they shut down.
TEST(MembershipTest, AFixedWorldKnowsItsNamesWhoeverIsThere) {
  Trio world(Trio::Kind::kFixed);
  const Names all{"a", "b", "c"};
  EXPECT_EQ(world.c.membership->world_names(), all);
  world.lose(world.c);
  world.lose(world.b);
  world.advance(seconds(1));
  Worker& b2 = world.add("b", MembershipWorld::fixed(1, 3));
  world.advance(seconds(3));
  ASSERT_EQ(b2.outcome(), "ok");
  EXPECT_EQ(b2.names(), (Names{"a", "b"}));
  EXPECT_EQ(b2.membership->world_names(), all);
  Worker& other = world.add("d", MembershipWorld::fixed(2, 3));
  world.advance(seconds(3));
  ASSERT_EQ(other.outcome(), "ok");
  for (const Worker* worker : {&world.a, &b2, &other}) {
    EXPECT_EQ(worker->membership->world_names(), all);
  }
}

TEST(MembershipTest, FixedWorldReplacesAWorkerThatCameBack) {
  Trio world(Trio::Kind::kFixed);
  const WorkerInfo old = world.b.info();
  world.lose(world.b);
  world.advance(seconds(1));
  EXPECT_EQ(world.a.names(), (Names{"a", "c"}));
  EXPECT_EQ(world.c.names(), (Names{"a", "c"}));
  Worker& b2 = world.add("b", MembershipWorld::fixed(1, 3));
  world.advance(seconds(3));
  EXPECT_EQ(b2.outcome(), "ok");
  EXPECT_EQ(world.c.names(), (Names{"a", "b", "c"}));
  EXPECT_FALSE(world.c.directory.find(old).ok());
  EXPECT_EQ(world.c.events, (Names{"+a", "+b", "-b", "+b"}));
}

TEST(MembershipTest, RankZeroComesBackToAFixedWorld) {
  Trio world(Trio::Kind::kFixed);
  world.lose(world.a);
  world.advance(seconds(1));
  EXPECT_EQ(world.c.membership->coordinator().name, "b");
  EXPECT_EQ(world.c.names(), (Names{"b", "c"}));
  Worker& a2 = world.add("a", MembershipWorld::fixed(0, 3));
  world.advance(seconds(6));
  EXPECT_EQ(a2.outcome(), "ok");
  for (const Worker* worker : {&a2, &world.b, &world.c}) {
    EXPECT_EQ(worker->names(), (Names{"a", "b", "c"}));
    EXPECT_EQ(worker->membership->coordinator(), a2.info()) << "it coordinates again";
  }
}

TEST(MembershipTest, OpenMembershipComesAndGoes) {
  MembershipWorld world;
  Worker& a = world.add("a", MembershipWorld::open());
  world.run();
  EXPECT_EQ(a.outcome(), "ok");
  EXPECT_EQ(a.info().rank, 0);
  Worker& b = world.add("b", MembershipWorld::open());
  world.advance(seconds(1));
  Worker& c = world.add("c", MembershipWorld::open(5));
  world.advance(seconds(1));
  EXPECT_EQ(b.info().rank, 1);
  EXPECT_EQ(c.info().rank, 5);
  EXPECT_EQ(b.names(), (Names{"a", "b", "c"}));
  const Future<void> left = b.membership->leave_async(seconds(5));
  world.advance(seconds(1));
  EXPECT_TRUE(left.done() && left.error() == nullptr);
  EXPECT_EQ(a.names(), (Names{"a", "c"}));
  EXPECT_EQ(c.names(), (Names{"a", "c"}));
  Worker& d = world.add("d", MembershipWorld::open());
  world.advance(seconds(1));
  EXPECT_EQ(d.info().rank, 1) << "the smallest free one";
  EXPECT_EQ(c.events, (Names{"+a", "+b", "bye b", "+d"}));
}

TEST(MembershipTest, EveryoneKnowsThatAWorkerLeavesBeforeItIsGone) {
  Trio world(Trio::Kind::kOpen);
  world.network.mute(world.c.plane.address());
  const Future<void> left = world.b.membership->leave_async(seconds(10));
  world.advance(seconds(1));
  EXPECT_EQ(world.a.names(), (Names{"a", "c"}));
  EXPECT_FALSE(left.done()) << "c has not confirmed";
  world.advance(seconds(2));
  EXPECT_TRUE(left.done() && left.error() == nullptr)
      << "but a worker that hangs holds it up for 2 s only";
  EXPECT_EQ(world.c.events, (Names{"+a", "+b", "bye b"}));
}

TEST(MembershipTest, EveryoneKnowsAWorkerWhenItsJoinIsDone) {
  MembershipWorld world;
  Worker& a = world.add("a", MembershipWorld::open());
  Worker& b = world.add("b", MembershipWorld::open());
  world.advance(seconds(1));
  world.network.mute(b.plane.address());
  Worker& c = world.add("c", MembershipWorld::open());
  world.advance(seconds(1));
  EXPECT_EQ(a.names().size(), 3u);
  EXPECT_EQ(c.outcome(), "pending") << "b has not confirmed";
  world.advance(seconds(2));
  EXPECT_EQ(c.outcome(), "ok") << "but a worker that hangs holds it up for 2 s only";
}

TEST(MembershipTest, RankZeroLeavesLikeAnyOther) {
  Trio world(Trio::Kind::kOpen);
  const Future<void> left = world.a.membership->leave_async(seconds(5));
  world.advance(seconds(1));
  ASSERT_TRUE(left.done() && left.error() == nullptr);
  EXPECT_EQ(world.b.names(), (Names{"b", "c"}));
  EXPECT_EQ(world.b.events, (Names{"+a", "+c", "bye a"}));
  EXPECT_EQ(world.c.membership->coordinator().name, "b");
  const Future<void> second = world.c.membership->leave_async(seconds(5));
  world.advance(seconds(1));
  ASSERT_TRUE(second.done() && second.error() == nullptr);
  EXPECT_EQ(world.b.names(), (Names{"b"}));
  EXPECT_TRUE(world.b.removed.empty());
}

// The one that leaves has not noticed, or could not tell any more.
TEST(MembershipTest, WhoTakesOverDropsWhomItHasLost) {
  Trio world(Trio::Kind::kOpen);
  const WorkerInfo c = world.c.info();
  world.network.kill(world.c.plane.address());
  world.dead.insert(c.incarnation);
  world.c.membership.reset();
  world.b.membership->on_worker_lost(c);
  world.run();
  world.a.membership->leave_async(seconds(5));
  world.advance(seconds(5));
  EXPECT_EQ(world.b.membership->coordinator().name, "b");
  EXPECT_EQ(world.b.names(), Names{"b"});
}

TEST(MembershipTest, AllLeaveAtOnce) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    MembershipWorld world(seed);
    for (int rank = 0; rank < 4; ++rank) {
      world.add(std::string(1, static_cast<char>('a' + rank)), MembershipWorld::fixed(rank, 4));
    }
    world.advance(seconds(2));
    std::vector<Future<void>> left;
    for (const auto& worker : world.workers) {
      ASSERT_EQ(worker->outcome(), "ok");
      left.push_back(worker->membership->leave_async(seconds(20)));
    }
    // Their processes end when they have left.
    for (int i = 0; i < 400; ++i) {
      world.advance(milliseconds(50));
      for (std::size_t w = 0; w < left.size(); ++w) {
        if (left[w].done() && world.workers[w]->membership) world.lose(*world.workers[w]);
      }
    }
    for (const Future<void>& each : left) {
      ASSERT_TRUE(each.done());
      EXPECT_EQ(each.error(), nullptr) << to_status(each.error());
    }
    for (const auto& worker : world.workers) {
      for (const std::string& event : worker->events) EXPECT_NE(event[0], '-') << event;
    }
  }
}

TEST(MembershipTest, LeaveOfAMuteWorldEndsWithItsDeadline) {
  MembershipWorld world;
  Worker& a = world.add("a", MembershipWorld::open());
  Worker& b = world.add("b", MembershipWorld::open());
  world.advance(seconds(1));
  world.network.silence(a.plane.address());
  const Future<void> left = b.membership->leave_async(seconds(3));
  world.advance(seconds(4));
  ASSERT_TRUE(left.done());
  EXPECT_THAT(std::string(to_status(left.error()).message()),
              ::testing::HasSubstr("could not tell all others in time"));
  EXPECT_FALSE(b.membership->ready());
}

TEST(MembershipTest, TakeOverKeepsWhoJoinedLast) {
  // The coordinator admits d, tells only c of it, and dies. b goes on from c's list.
  Trio world(Trio::Kind::kOpen);
  world.network.cut(world.a.plane.address(), world.b.plane.address());
  Worker& d = world.add("d", MembershipWorld::open());
  world.advance(milliseconds(200));
  ASSERT_EQ(world.c.names().size(), 4u);
  ASSERT_EQ(world.b.names().size(), 3u);
  world.lose(world.a);
  world.advance(seconds(5));
  for (const Worker* worker : {&world.b, &world.c, &d}) {
    EXPECT_EQ(worker->outcome(), "ok");
    EXPECT_EQ(worker->names(), (Names{"b", "c", "d"}));
    EXPECT_EQ(worker->membership->coordinator().name, "b");
  }
}

TEST(MembershipTest, WhoWasRemovedLearnsItWhenItTakesOver) {
  // The coordinator takes b off the list, and only c hears of it, before b in turn misses the
  // coordinator. c shows no list to somebody who is not on it.
  Trio world(Trio::Kind::kOpen);
  world.network.cut(world.a.plane.address(), world.b.plane.address());
  world.a.membership->on_worker_lost(world.b.info());
  world.advance(seconds(1));
  ASSERT_EQ(world.c.names(), (Names{"a", "c"}));
  ASSERT_EQ(world.b.names().size(), 3u);
  world.b.membership->on_worker_lost(world.a.info());
  world.advance(seconds(3));
  EXPECT_THAT(world.b.removed, ::testing::HasSubstr("the others took it for lost"));
  EXPECT_EQ(world.a.names(), (Names{"a", "c"}));
  EXPECT_EQ(world.c.names(), (Names{"a", "c"}));
}

TEST(MembershipTest, ACoordinatorThatWasTakenForLostIsTold) {
  Trio world(Trio::Kind::kOpen);
  world.b.membership->on_worker_lost(world.a.info());
  world.c.membership->on_worker_lost(world.a.info());
  world.advance(seconds(3));
  EXPECT_EQ(world.c.names(), (Names{"b", "c"}));
  // Its next list meets members that know better.
  world.a.membership->on_worker_lost({"nobody", 7, {77}});
  world.add("d", MembershipWorld::open());
  world.advance(seconds(3));
  EXPECT_THAT(world.a.removed, ::testing::HasSubstr("took it for lost"));
  EXPECT_FALSE(world.a.membership->ready());
}

TEST(MembershipTest, HostileRequestsChangeNothing) {
  MembershipWorld world;
  Worker& a = world.add("a", MembershipWorld::open());
  Worker& b = world.add("b", MembershipWorld::open());
  world.advance(seconds(1));
  FakeControlPlane stranger(world.network, {"stranger", -1, {99}}, "at:stranger");
  const auto code_of = [&](const std::string& method, const std::string& body) {
    const Future<std::string> reply =
        stranger.control_call_address({"at:rank0", ""}, method, body, seconds(5));
    world.advance(seconds(1));
    return reply.done() && reply.error() != nullptr ? to_status(reply.error()).code()
                                                    : absl::StatusCode::kOk;
  };
  for (const std::string method : {"join", "admit", "update", "leave", "invite"}) {
    EXPECT_EQ(code_of("sinew.member." + method, "\xff\xff"), absl::StatusCode::kInvalidArgument)
        << method;
  }
  proto::JoinRequest join;
  join.mutable_member()->mutable_worker()->set_name("b2");
  join.mutable_member()->mutable_worker()->set_rank(-1);
  join.mutable_member()->mutable_worker()->set_incarnation(5);
  join.mutable_member()->set_address("at:b2");
  join.set_job("job");
  EXPECT_EQ(code_of("sinew.member.join", join.SerializeAsString()),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(code_of("sinew.member.admit", join.SerializeAsString()),
            absl::StatusCode::kPermissionDenied);
  proto::LeaveRequest leave;
  leave.mutable_worker()->set_name("b");
  leave.mutable_worker()->set_incarnation(b.plane.self().incarnation.value);
  EXPECT_EQ(code_of("sinew.member.leave", leave.SerializeAsString()),
            absl::StatusCode::kPermissionDenied);
  proto::MemberList list;
  list.set_version(std::uint64_t{1} << 60);
  EXPECT_EQ(code_of("sinew.member.update", list.SerializeAsString()),
            absl::StatusCode::kPermissionDenied);
  // Its own list, newer than theirs, with itself in the first place: with them, and without.
  for (const bool keeps : {true, false}) {
    list.Clear();
    list.set_version(std::uint64_t{1} << 60);
    encode(member_at("at:stranger", {"stranger", 0, {99}}), *list.add_members());
    std::int32_t rank = 1;
    for (const Worker* worker : {&a, &b}) {
      WorkerInfo info = worker->plane.self();
      info.rank = rank++;
      if (keeps) encode(member_at("at:" + info.name, info), *list.add_members());
    }
    EXPECT_EQ(code_of("sinew.member.update", list.SerializeAsString()),
              absl::StatusCode::kPermissionDenied);
  }
  list.Clear();
  list.set_version(1);
  for (int i = 0; i < 1025; ++i) list.add_left(1);
  EXPECT_EQ(code_of("sinew.member.update", list.SerializeAsString()),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(a.names(), (Names{"a", "b"}));
  EXPECT_TRUE(a.removed.empty());
}

// Workers of an open job die, leave and join in any order of messages; in the end the living agree.
TEST(MembershipTest, TheLivingAgreeInTheEnd) {
  int most = 0;
  for (std::uint32_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    MembershipWorld world(seed);
    // The first one stays reachable at the rendezvous, so that others can always join.
    world.add("w0", MembershipWorld::open());
    world.advance(milliseconds(100));
    std::vector<std::pair<Worker*, Future<void>>> leaving;
    for (int i = 1; i < 14; ++i) {
      const std::size_t victim = 1 + random() % world.workers.size();
      const bool exists = victim < world.workers.size() && world.workers[victim]->membership &&
                          world.workers[victim]->membership->ready();
      switch (random() % 4) {
        case 0:
          if (exists) world.lose(*world.workers[victim]);
          break;
        case 1:
          if (exists) {
            Worker& worker = *world.workers[victim];
            leaving.emplace_back(&worker, worker.membership->leave_async(seconds(10)));
          }
          break;
        default:
          world.add("w" + std::to_string(i), MembershipWorld::open());
      }
      world.advance(milliseconds(50 * (random() % 4)));
    }
    world.advance(seconds(20));
    for (auto& [worker, left] : leaving) {
      EXPECT_TRUE(left.done());
      if (worker->membership) world.lose(*worker);
    }
    world.advance(seconds(10));
    Names living;
    for (const auto& worker : world.workers) {
      if (worker->membership) living.push_back(worker->plane.self().name);
    }
    std::sort(living.begin(), living.end());
    most = std::max(most, static_cast<int>(living.size()));
    for (const auto& worker : world.workers) {
      if (!worker->membership) continue;
      EXPECT_EQ(worker->outcome(), "ok") << worker->plane.self();
      Names seen = worker->names();
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(seen, living) << "as " << worker->plane.self().name << " sees it";
    }
  }
  EXPECT_GT(most, 4);
}

}  // namespace
}  // namespace sinew::internal
