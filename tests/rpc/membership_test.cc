#include "sinew/rpc/internal/membership.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "sinew/membership.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/internal/coordinator.h"
#include "sinew/rpc/internal/file_rendezvous.h"
#include "sinew/tests/support/fake_control_plane.h"
#include "sinew/tests/support/manual_clock.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using testing::FakeControlNetwork;
using testing::FakeControlPlane;
using testing::ManualClock;
using testing::StepRunner;

Member member(const std::string& name, int rank, std::uint64_t incarnation = 1) {
  return {{name, rank, {incarnation}}, "at:" + name, 0};
}

JoinAsk ask(const std::string& name, int rank, int world_size, std::uint64_t incarnation = 1) {
  return {member(name, rank, incarnation), "job", world_size};
}

std::string text_of(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "the text is: " << (text)

// The pure part.

using Kind = Coordinator::Verdict::Kind;

TEST(CoordinatorTest, FixedWorldCompletesWhenAllRanksAreThere) {
  Coordinator coordinator("job", {1, 3, {member("a", 0)}}, false);
  EXPECT_EQ(coordinator.consider(ask("c", 2, 3)).kind, Kind::kWaits);
  EXPECT_EQ(coordinator.consider(ask("c", 2, 3)).kind, Kind::kWaits) << "asks again";
  EXPECT_EQ(coordinator.missing_ranks(), std::vector<int>{1});
  EXPECT_FALSE(coordinator.complete());
  EXPECT_EQ(coordinator.consider(ask("b", 1, 3)).kind, Kind::kAdmitted);
  EXPECT_TRUE(coordinator.complete());
  EXPECT_EQ(coordinator.view().members[1].worker.name, "b") << "sorted by rank";
  EXPECT_TRUE(coordinator.drop(member("c", 2).worker, Departure::kLost));
  EXPECT_FALSE(coordinator.drop(member("c", 2).worker, Departure::kLost));
  EXPECT_TRUE(coordinator.complete()) << "for ever";
  EXPECT_EQ(coordinator.consider(ask("c", 2, 3, 2)).kind, Kind::kAdmitted) << "it came back";
}

TEST(CoordinatorTest, RefusesWhatDoesNotFit) {
  Coordinator coordinator("job", {1, 3, {member("a", 0)}}, false);
  const std::pair<JoinAsk, std::string> cases[] = {
      {ask("x", 3, 3), "ranks of this job go from 0 to 2"},
      {ask("x", -1, 3), "rank -1"},
      {ask("x", 1, 4), "a fixed world of 4"},
      {ask("x", 1, 0), "open membership"},
      {{member("x", 1), "other", 3}, "belongs to job 'other'"},
  };
  for (const auto& [wrong, part] : cases) {
    const Coordinator::Verdict verdict = coordinator.consider(wrong);
    EXPECT_EQ(verdict.kind, Kind::kRefused) << part;
    EXPECT_CONTAINS(text_of(verdict.refusal), part);
  }
  EXPECT_EQ(coordinator.view().version, 1u);
  Coordinator open("job", {1, 0, {member("a", 0)}}, false);
  EXPECT_CONTAINS(text_of(open.consider(ask("x", 1, 2)).refusal), "do not mix");
}

TEST(CoordinatorTest, ProbesHoldersOfNameAndRank) {
  Coordinator coordinator("job", {1, 4, {member("a", 0), member("b", 1)}}, false);
  Coordinator::Verdict verdict = coordinator.consider(ask("b", 2, 4, 9));
  EXPECT_EQ(verdict.kind, Kind::kProbe);
  ASSERT_EQ(verdict.incumbents.size(), 1u);
  EXPECT_EQ(text_of(coordinator.refuse(ask("b", 2, 4, 9), verdict.incumbents[0])),
            "name 'b' is already used by rank 1, which is alive; choose another name");
  verdict = coordinator.consider(ask("x", 1, 4));
  EXPECT_EQ(verdict.kind, Kind::kProbe);
  EXPECT_EQ(text_of(coordinator.refuse(ask("x", 1, 4), verdict.incumbents[0])),
            "rank 1 is already used by worker 'b', which is alive; choose another rank for 'x'");
  EXPECT_EQ(coordinator.consider(ask("a", 1, 4, 9)).incumbents.size(), 2u);
  const std::string text = text_of(coordinator.missing_text(seconds(60)));
  EXPECT_CONTAINS(text, "2 of 4 workers joined within 60 s; missing ranks: 2, 3");
  EXPECT_CONTAINS(text, "rank 2 was refused: name 'b' is already used");
  EXPECT_TRUE(coordinator.drop(member("b", 1).worker, Departure::kLost));
  EXPECT_EQ(coordinator.consider(ask("b", 1, 4, 9)).kind, Kind::kWaits);
}

TEST(CoordinatorTest, OpenMembershipGivesTheSmallestFreeRank) {
  Coordinator coordinator("job", {1, 0, {member("a", 0), member("c", 2)}}, false);
  EXPECT_EQ(coordinator.consider(ask("b", -1, 0)).worker.rank, 1);
  EXPECT_EQ(coordinator.consider(ask("d", -1, 0)).worker.rank, 3);
  EXPECT_EQ(coordinator.consider(ask("e", 9, 0)).worker.rank, 9);
  EXPECT_EQ(coordinator.consider(ask("b", -1, 0)).worker.rank, 1) << "asks again";
  coordinator.drop(member("a", 0).worker, Departure::kLost);
  EXPECT_EQ(coordinator.consider(ask("f", -1, 0)).worker.rank, 0);
}

// The protocol, over a fake plane and a clock that is moved by hand.

class World;

struct Worker {
  Worker(World& world, const std::string& name, Rendezvous rendezvous, bool serves,
         std::uint64_t incarnation, const std::string& address, seconds timeout);

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const Member& each : directory.members()) all.push_back(each.worker.name);
    return all;
  }
  // "ok", or the error's text.
  std::string outcome() const {
    if (!joined.done()) return "pending";
    return joined.error() == nullptr ? "ok" : text_of(to_status(joined.error()));
  }
  absl::StatusCode code() const { return to_status(joined.error()).code(); }
  WorkerInfo info() const { return membership->self(); }

  Directory directory;
  FakeControlPlane plane;
  std::vector<std::string> events;
  std::vector<std::string> warnings;
  std::string removed;
  std::unique_ptr<Membership> membership;
  Future<void> joined;
};

class World {
 public:
  World() : World(std::make_shared<StepRunner>()) {}
  explicit World(std::uint32_t seed) : World(std::make_shared<StepRunner>(seed)) {}

  static Rendezvous fixed(int rank, int world_size) {
    return {Rendezvous::Kind::kTcp, "at:rank0", "", rank, world_size};
  }
  static Rendezvous open(int rank = -1) {
    return {Rendezvous::Kind::kTcp, "at:rank0", "", rank, 0};
  }

  // With an empty address: "at:" and the name, or for who serves the rendezvous, that.
  Worker& add(const std::string& name, const Rendezvous& rendezvous,
              seconds timeout = seconds(60)) {
    const bool fixed = rendezvous.world_size > 0;
    const bool serves = rendezvous.kind == Rendezvous::Kind::kTcp &&
                        (fixed ? rendezvous.rank == 0 : workers.empty());
    const std::string address = serves ? "at:rank0" : "at:" + name + std::to_string(next_);
    workers.push_back(
        std::make_unique<Worker>(*this, name, rendezvous, serves, next_++, address, timeout));
    return *workers.back();
  }

  // Tasks that never run would keep their strands, which keep the runner.
  ~World() { run(); }

  void run() { runner->run_until_idle(); }
  void advance(nanoseconds time) {
    run();
    for (nanoseconds done{}; done < time; done += milliseconds(50)) {
      clock.advance(milliseconds(50));
      run();
    }
  }
  // The worker dies and the others' leases end.
  void lose(Worker& lost) {
    network.kill(lost.plane.address());
    dead.insert(lost.plane.self().incarnation);
    const WorkerInfo info = lost.info();
    lost.membership.reset();
    for (const auto& worker : workers) {
      if (worker->membership) worker->membership->on_worker_lost(info);
    }
  }

  std::shared_ptr<StepRunner> runner;
  ManualClock clock;
  Scheduler scheduler;
  FakeControlNetwork network;
  std::set<Incarnation> dead;
  int probes = 0;
  std::vector<std::unique_ptr<Worker>> workers;

 private:
  explicit World(std::shared_ptr<StepRunner> step_runner)
      : runner(std::move(step_runner)),
        scheduler(runner, clock, clock),
        network(runner, clock, clock) {}
  std::uint64_t next_ = 1;
};

Worker::Worker(World& world, const std::string& name, Rendezvous rendezvous, bool serves,
               std::uint64_t incarnation, const std::string& address, seconds timeout)
    : plane(world.network, {name, -1, {incarnation}}, address) {
  MembershipOptions options;
  options.self = {{name, -1, {incarnation}}, address, 0};
  options.job = "job";
  options.rendezvous = rendezvous;
  options.timeout = timeout;
  options.serves_rendezvous = serves;
  options.probe_lost = [&world](const WorkerInfo& who) {
    ++world.probes;
    return make_ready_future<bool>(world.dead.count(who.incarnation) > 0);
  };
  options.on_change = [this](const std::vector<Member>& fresh, const std::vector<Departed>& gone) {
    for (const Member& each : fresh) events.push_back("+" + each.worker.name);
    for (const Departed& each : gone) {
      events.push_back((each.how == Departure::kLeft ? "bye " : "-") + each.worker.name);
    }
  };
  options.on_removed = [this](const absl::Status& reason) { removed = text_of(reason); };
  options.on_warning = [this](const std::string& warning) { warnings.push_back(warning); };
  membership = std::make_unique<Membership>(plane, directory, options, world.scheduler);
  joined = membership->join_async();
}

using Names = std::vector<std::string>;

TEST(MembershipTest, FixedWorldStartsWhenAllAreThere) {
  World world;
  Worker& b = world.add("b", World::fixed(1, 3));
  world.advance(seconds(3));
  Worker& a = world.add("a", World::fixed(0, 3));
  world.advance(seconds(2));
  EXPECT_EQ(a.outcome(), "pending");
  EXPECT_EQ(b.outcome(), "pending");
  EXPECT_FALSE(b.membership->ready());
  Worker& c = world.add("c", World::fixed(2, 3));
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
  World world;
  Worker& a = world.add("a", World::fixed(0, 1));
  world.run();
  EXPECT_EQ(a.outcome(), "ok");
  const Future<void> left = a.membership->leave_async(seconds(5));
  world.run();
  EXPECT_TRUE(left.done() && left.error() == nullptr);
  EXPECT_FALSE(a.membership->ready());
}

TEST(MembershipTest, MissingRanksAreNamedToAllOfThem) {
  World world;
  Worker& a = world.add("a", World::fixed(0, 4));
  Worker& b = world.add("b", World::fixed(1, 4));
  Worker& d = world.add("d", World::fixed(3, 4));
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
  World world;
  Worker& a = world.add("a", World::fixed(0, 3));
  Worker& b = world.add("b", World::fixed(1, 3), seconds(5));
  world.advance(seconds(6));
  EXPECT_CONTAINS(b.outcome(), "2 of 3 workers joined within 5 s; missing ranks: 2");
  Worker& b2 = world.add("b", World::fixed(1, 3));
  world.add("c", World::fixed(2, 3));
  world.advance(seconds(2));
  EXPECT_EQ(a.outcome(), "ok");
  EXPECT_EQ(b2.outcome(), "ok");
  EXPECT_EQ(a.directory.find("b")->worker, b2.info());
}

TEST(MembershipTest, NobodyAnswers) {
  World world;
  Worker& b = world.add("b", World::fixed(1, 2), seconds(10));
  world.advance(seconds(11));
  EXPECT_EQ(b.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_CONTAINS(b.outcome(),
                  "worker 'b' could not join job 'job' within 10 s: rank 0 at 'at:rank0'");
  EXPECT_CONTAINS(b.outcome(), "last try: 'at:rank0' said: at:rank0 refuses");
}

TEST(MembershipTest, BlackHoleEndsWithTheDeadline) {
  World world;
  world.network.silence("at:rank0");
  Worker& b = world.add("b", World::fixed(1, 2), seconds(7));
  world.advance(seconds(8));
  EXPECT_CONTAINS(b.outcome(), "was not answered in time");
}

TEST(MembershipTest, DuplicatesAreRefusedAndTheOthersGoOn) {
  World world;
  Worker& a = world.add("a", World::fixed(0, 3));
  Worker& b = world.add("b", World::fixed(1, 3));
  world.run();
  Worker& same_name = world.add("b", World::fixed(2, 3));
  Worker& same_rank = world.add("x", World::fixed(1, 3));
  Worker& as_master = world.add("a", World::fixed(2, 3));
  Worker& wrong_size = world.add("y", World::fixed(2, 4));
  Worker& dynamic = world.add("z", World::open());
  world.advance(seconds(1));
  EXPECT_EQ(same_name.outcome(),
            "name 'b' is already used by rank 1, which is alive; choose another name");
  EXPECT_EQ(same_name.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_CONTAINS(same_rank.outcome(), "rank 1 is already used by worker 'b'");
  EXPECT_CONTAINS(as_master.outcome(), "name 'a' is already used by rank 0");
  EXPECT_CONTAINS(wrong_size.outcome(), "a fixed world of 4");
  EXPECT_CONTAINS(dynamic.outcome(), "do not mix");
  Worker& c = world.add("c", World::fixed(2, 3));
  world.advance(seconds(1));
  for (const Worker* worker : {&a, &b, &c}) EXPECT_EQ(worker->outcome(), "ok");
}

TEST(MembershipTest, RestartWhileTheWorldCollects) {
  World world;
  world.add("a", World::fixed(0, 3));
  Worker& b = world.add("b", World::fixed(1, 3));
  world.run();
  // It dies, and nobody has noticed when the new one comes: the coordinator asks the network.
  world.network.kill(b.plane.address());
  world.dead.insert(b.plane.self().incarnation);
  b.membership.reset();
  Worker& b2 = world.add("b", World::fixed(1, 3));
  world.add("c", World::fixed(2, 3));
  world.advance(seconds(2));
  EXPECT_EQ(b2.outcome(), "ok");
  EXPECT_EQ(world.probes, 1);
}

TEST(MembershipTest, FixedWorldReplacesAWorkerThatCameBack) {
  World world;
  Worker& a = world.add("a", World::fixed(0, 3));
  Worker& b = world.add("b", World::fixed(1, 3));
  Worker& c = world.add("c", World::fixed(2, 3));
  world.advance(seconds(2));
  const WorkerInfo old = b.info();
  world.lose(b);
  world.advance(seconds(1));
  EXPECT_EQ(a.names(), (Names{"a", "c"}));
  EXPECT_EQ(c.names(), (Names{"a", "c"}));
  Worker& b2 = world.add("b", World::fixed(1, 3));
  world.advance(seconds(3));
  EXPECT_EQ(b2.outcome(), "ok");
  EXPECT_EQ(c.names(), (Names{"a", "b", "c"}));
  EXPECT_FALSE(c.directory.find(old).ok());
  EXPECT_EQ(c.events, (Names{"+a", "+b", "-b", "+b"}));
}

TEST(MembershipTest, RankZeroComesBackToAFixedWorld) {
  World world;
  Worker& a = world.add("a", World::fixed(0, 3));
  Worker& b = world.add("b", World::fixed(1, 3));
  Worker& c = world.add("c", World::fixed(2, 3));
  world.advance(seconds(2));
  world.lose(a);
  world.advance(seconds(1));
  EXPECT_EQ(c.membership->coordinator().name, "b");
  EXPECT_EQ(c.names(), (Names{"b", "c"}));
  Worker& a2 = world.add("a", World::fixed(0, 3));
  world.advance(seconds(6));
  EXPECT_EQ(a2.outcome(), "ok");
  for (const Worker* worker : {&a2, &b, &c}) {
    EXPECT_EQ(worker->names(), (Names{"a", "b", "c"}));
    EXPECT_EQ(worker->membership->coordinator(), a2.info()) << "it coordinates again";
  }
}

TEST(MembershipTest, OpenMembershipComesAndGoes) {
  World world;
  Worker& a = world.add("a", World::open());
  world.run();
  EXPECT_EQ(a.outcome(), "ok");
  EXPECT_EQ(a.info().rank, 0);
  Worker& b = world.add("b", World::open());
  world.advance(seconds(1));
  Worker& c = world.add("c", World::open(5));
  world.advance(seconds(1));
  EXPECT_EQ(b.info().rank, 1);
  EXPECT_EQ(c.info().rank, 5);
  EXPECT_EQ(b.names(), (Names{"a", "b", "c"}));
  const Future<void> left = b.membership->leave_async(seconds(5));
  world.advance(seconds(1));
  EXPECT_TRUE(left.done() && left.error() == nullptr);
  EXPECT_EQ(a.names(), (Names{"a", "c"}));
  EXPECT_EQ(c.names(), (Names{"a", "c"}));
  Worker& d = world.add("d", World::open());
  world.advance(seconds(1));
  EXPECT_EQ(d.info().rank, 1) << "the smallest free one";
  EXPECT_EQ(c.events, (Names{"+a", "+b", "bye b", "+d"}));
}

TEST(MembershipTest, EveryoneKnowsThatAWorkerLeavesBeforeItIsGone) {
  World world;
  Worker& a = world.add("a", World::open());
  Worker& b = world.add("b", World::open());
  Worker& c = world.add("c", World::open());
  world.advance(seconds(2));
  world.network.mute(c.plane.address());
  const Future<void> left = b.membership->leave_async(seconds(10));
  world.advance(seconds(1));
  EXPECT_EQ(a.names(), (Names{"a", "c"}));
  EXPECT_FALSE(left.done()) << "c has not confirmed";
  world.advance(seconds(2));
  EXPECT_TRUE(left.done() && left.error() == nullptr)
      << "but a worker that hangs holds it up for 2 s only";
  EXPECT_EQ(c.events, (Names{"+a", "+b", "bye b"}));
}

TEST(MembershipTest, EveryoneKnowsAWorkerWhenItsJoinIsDone) {
  World world;
  Worker& a = world.add("a", World::open());
  Worker& b = world.add("b", World::open());
  world.advance(seconds(1));
  world.network.mute(b.plane.address());
  Worker& c = world.add("c", World::open());
  world.advance(seconds(1));
  EXPECT_EQ(a.names().size(), 3u);
  EXPECT_EQ(c.outcome(), "pending") << "b has not confirmed";
  world.advance(seconds(2));
  EXPECT_EQ(c.outcome(), "ok") << "but a worker that hangs holds it up for 2 s only";
}

TEST(MembershipTest, RankZeroLeavesLikeAnyOther) {
  World world;
  Worker& a = world.add("a", World::open());
  Worker& b = world.add("b", World::open());
  Worker& c = world.add("c", World::open());
  world.advance(seconds(2));
  const Future<void> left = a.membership->leave_async(seconds(5));
  world.advance(seconds(1));
  ASSERT_TRUE(left.done() && left.error() == nullptr);
  EXPECT_EQ(b.names(), (Names{"b", "c"}));
  EXPECT_EQ(b.events, (Names{"+a", "+c", "bye a"}));
  EXPECT_EQ(c.membership->coordinator().name, "b");
  const Future<void> second = c.membership->leave_async(seconds(5));
  world.advance(seconds(1));
  ASSERT_TRUE(second.done() && second.error() == nullptr);
  EXPECT_EQ(b.names(), (Names{"b"}));
  EXPECT_TRUE(b.removed.empty());
}

TEST(MembershipTest, AllLeaveAtOnce) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    World world(seed);
    for (int rank = 0; rank < 4; ++rank) {
      world.add(std::string(1, static_cast<char>('a' + rank)), World::fixed(rank, 4));
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
  World world;
  Worker& a = world.add("a", World::open());
  Worker& b = world.add("b", World::open());
  world.advance(seconds(1));
  world.network.silence(a.plane.address());
  const Future<void> left = b.membership->leave_async(seconds(3));
  world.advance(seconds(4));
  ASSERT_TRUE(left.done());
  EXPECT_CONTAINS(text_of(to_status(left.error())), "could not tell all others in time");
  EXPECT_FALSE(b.membership->ready());
}

TEST(MembershipTest, TakeOverKeepsWhoJoinedLast) {
  // The coordinator admits d, tells only c of it, and dies. b goes on from c's list.
  World world;
  Worker& a = world.add("a", World::open());
  Worker& b = world.add("b", World::open());
  Worker& c = world.add("c", World::open());
  world.advance(seconds(2));
  world.network.cut(a.plane.address(), b.plane.address());
  Worker& d = world.add("d", World::open());
  world.advance(milliseconds(200));
  ASSERT_EQ(c.names().size(), 4u);
  ASSERT_EQ(b.names().size(), 3u);
  world.lose(a);
  world.advance(seconds(5));
  for (const Worker* worker : {&b, &c, &d}) {
    EXPECT_EQ(worker->outcome(), "ok");
    EXPECT_EQ(worker->names(), (Names{"b", "c", "d"}));
    EXPECT_EQ(worker->membership->coordinator().name, "b");
  }
}

TEST(MembershipTest, ACoordinatorThatWasTakenForLostIsTold) {
  World world;
  Worker& a = world.add("a", World::open());
  Worker& b = world.add("b", World::open());
  Worker& c = world.add("c", World::open());
  world.advance(seconds(2));
  b.membership->on_worker_lost(a.info());
  c.membership->on_worker_lost(a.info());
  world.advance(seconds(3));
  EXPECT_EQ(c.names(), (Names{"b", "c"}));
  // Its next list meets members that know better.
  a.membership->on_worker_lost({"nobody", 7, {77}});
  world.add("d", World::open());
  world.advance(seconds(3));
  EXPECT_CONTAINS(a.removed, "took it for lost");
  EXPECT_FALSE(a.membership->ready());
}

TEST(MembershipTest, HostileRequestsChangeNothing) {
  World world;
  Worker& a = world.add("a", World::open());
  Worker& b = world.add("b", World::open());
  world.advance(seconds(1));
  FakeControlPlane stranger(world.network, {"stranger", -1, {99}}, "at:stranger");
  const auto code_of = [&](const std::string& method, const std::string& body) {
    const Future<std::string> reply =
        stranger.control_call_address("at:rank0", method, body, seconds(5));
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
    World world(seed);
    // The first one stays reachable at the rendezvous, so that others can always join.
    world.add("w0", World::open());
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
          world.add("w" + std::to_string(i), World::open());
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

class FileMembershipTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "sinew-membership-XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override {
    ::unlink(path().c_str());
    ::unlink((path() + ".lock").c_str());
    EXPECT_EQ(::rmdir(folder_.c_str()), 0);
  }
  std::string path() const { return folder_ + "/job"; }
  Rendezvous file(int rank = -1, int world_size = 0) const {
    return {Rendezvous::Kind::kFile, "", path(), rank, world_size};
  }
  std::string folder_;
};

TEST_F(FileMembershipTest, OpenJobOutlivesItsFounderAndRemovesTheFile) {
  World world;
  Worker& a = world.add("a", file());
  Worker& b = world.add("b", file());
  world.advance(seconds(3));
  ASSERT_EQ(a.outcome(), "ok");
  ASSERT_EQ(b.outcome(), "ok");
  EXPECT_EQ(b.names(), (Names{"a", "b"}));
  a.membership->leave_async(seconds(5));
  world.advance(seconds(1));
  Worker& c = world.add("c", file());
  world.advance(seconds(3));
  EXPECT_EQ(c.outcome(), "ok");
  EXPECT_EQ(c.info().rank, 0);
  EXPECT_EQ(b.membership->coordinator().name, "c") << "the lowest rank coordinates";
  b.membership->leave_async(seconds(5));
  world.advance(seconds(1));
  c.membership->leave_async(seconds(5));
  world.advance(seconds(1));
  EXPECT_NE(::access(path().c_str(), F_OK), 0);
}

TEST_F(FileMembershipTest, FixedWorldOverAnOldFile) {
  const FileRendezvous old(path(), "job");
  ASSERT_TRUE(old.publish({{"a", 0, {900}}, "at:gone", 0}).ok());
  ASSERT_TRUE(old.publish({{"b", 1, {901}}, "at:gone2", 0}).ok());
  std::ofstream(path(), std::ios::app) << "garbage\n";
  World world;
  Worker& b = world.add("b", file(1, 2));
  world.advance(seconds(1));
  Worker& a = world.add("a", file(0, 2));
  world.advance(seconds(3));
  EXPECT_EQ(a.outcome(), "ok");
  EXPECT_EQ(b.outcome(), "ok");
  ASSERT_FALSE(b.warnings.empty());
  EXPECT_CONTAINS(b.warnings[0], "line 3 of the rendezvous file");
  EXPECT_EQ(old.read()->entries.size(), 2u);
}

TEST_F(FileMembershipTest, RankZeroComesBackByTheFile) {
  World world;
  Worker& a = world.add("a", file(0, 2));
  Worker& b = world.add("b", file(1, 2));
  world.advance(seconds(3));
  ASSERT_EQ(b.outcome(), "ok");
  world.lose(a);
  world.advance(seconds(1));
  Worker& a2 = world.add("a", file(0, 2));
  world.advance(seconds(5));
  EXPECT_EQ(a2.outcome(), "ok");
  EXPECT_EQ(b.names(), (Names{"a", "b"}));
}

TEST_F(FileMembershipTest, SilentEntriesAreNamedAtTheDeadline) {
  const FileRendezvous old(path(), "job");
  ASSERT_TRUE(old.publish({{"a", 0, {900}}, "at:hole", 0}).ok());
  World world;
  world.network.silence("at:hole");
  Worker& b = world.add("b", file(), seconds(12));
  world.advance(seconds(14));
  EXPECT_CONTAINS(b.outcome(), "none of the 1 workers in the rendezvous file");
  EXPECT_CONTAINS(b.outcome(), "remove the file");
}

TEST_F(FileMembershipTest, EmptyFileIsNamedAtTheDeadline) {
  World world;
  Worker& b = world.add("b", file(1, 2), seconds(5));
  world.advance(seconds(6));
  EXPECT_CONTAINS(b.outcome(), "names no worker of the job");
}

}  // namespace
}  // namespace sinew::internal
