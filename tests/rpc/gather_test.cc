#include "sinew/rpc/membership/peer_gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/membership.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/departures.h"
#include "sinew/tests/rpc/gather_world.h"
#include "sinew/tests/support/repetitions.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using testing::FakeControlNetwork;
using testing::FakeControlPlane;
using testing::ManualClock;
using testing::repetitions;
using testing::StepRunner;
using Names = std::vector<std::string>;
using Values = std::vector<std::string>;

TEST(GatherTest, EveryoneGetsAllValuesInTheOrderOfNames) {
  GatherWorld world(kAll);
  std::vector<Future<Values>> results;
  for (int i : {2, 0, 1}) {
    results.push_back(world[i].gather->all_gather_async(
        {"c", "a", "b", "a"}, absl::StrCat("of ", kAll[i]), seconds(5), LossMode::kFail));
    if (i != 1) {
      world.advance(seconds(1));
      for (const auto& each : results) EXPECT_FALSE(each.done());
    }
  }
  world.run();
  for (const auto& each : results) {
    ASSERT_EQ(error_of(each), "ok");
    EXPECT_EQ(each.value(), (Values{"of a", "of b", "of c"}));
  }
  EXPECT_EQ(world.clock.num_timers(), 2u) << "only those of the two calls' own deadlines";
}

TEST(GatherTest, Singleton) {
  GatherWorld world(kAll);
  const auto barrier = world[1].gather->barrier_async({"b"}, seconds(1));
  world.run();
  EXPECT_EQ(error_of(barrier), "ok");
}

TEST(GatherTest, SetsAndRepeatedCallsDoNotMix) {
  GatherWorld world({"a", "b", "c", "d"});
  const Names low = {"a", "b"};
  const Names high = {"c", "d"};
  const Names all = {"a", "b", "c", "d"};
  std::vector<std::pair<Future<Values>, Values>> results;
  // Each worker makes the same calls on a set, one before the other has ended; sets in different
  // orders.
  for (int worker : {3, 1, 0, 2}) {
    const Names& mine = worker < 2 ? low : high;
    for (int round = 0; round < 3; ++round) {
      const auto value = [&](const std::string& name, const std::string& set) {
        return absl::StrCat(name, set, round);
      };
      const auto call = [&](const Names& names, const std::string& set) {
        Values expected;
        for (const std::string& name : names) expected.push_back(value(name, set));
        results.emplace_back(world[worker].gather->all_gather_async(names, value(all[worker], set),
                                                                    seconds(5), LossMode::kFail),
                             expected);
      };
      if (worker % 2 == 0) call(all, "all");
      call(mine, "half");
      if (worker % 2 == 1) call(all, "all");
    }
  }
  world.run();
  for (const auto& [result, expected] : results) {
    ASSERT_EQ(error_of(result), "ok");
    EXPECT_EQ(result.value(), expected);
  }
}

TEST(GatherTest, TimeoutNamesWhoIsMissing) {
  GatherWorld world({"a", "b", "c", "d"});
  const Names all = {"a", "b", "c", "d"};
  const auto b = world[1].gather->all_gather_async(all, "v", seconds(5), LossMode::kFail);
  const auto a = world[0].gather->all_gather_async(all, "v", milliseconds(100), LossMode::kFail);
  world.advance(milliseconds(200));
  EXPECT_EQ(error_of(a), "gather of 'a', 'b', 'c', 'd': 'c', 'd' did not come within 0.1 s");
  EXPECT_THAT(error_of(b), ::testing::HasSubstr("'c', 'd' did not come within 0.1 s"));
  EXPECT_EQ(to_status(b.error()).code(), absl::StatusCode::kDeadlineExceeded);
  // Who comes late gets the same, not a gather of its own.
  const auto c = world[2].gather->all_gather_async(all, "v", seconds(5), LossMode::kFail);
  world.advance(milliseconds(100));
  EXPECT_THAT(error_of(c), ::testing::HasSubstr("'c', 'd' did not come within 0.1 s"));
}

TEST(GatherTest, FollowerTimeoutNamesTheLeader) {
  GatherWorld world(kAll);
  const auto b = world[1].gather->barrier_async(kAll, milliseconds(500));
  world.advance(seconds(1));
  EXPECT_EQ(error_of(b), "gather of 'a', 'b', 'c': the leader 'a' did not answer within 0.5 s");
}

TEST(GatherTest, WrongSetsAreRefused) {
  GatherWorld world(kAll);
  EXPECT_THAT(error_of(world[0].gather->barrier_async({"b"}, seconds(1))),
              ::testing::HasSubstr("own name"));
  EXPECT_THAT(error_of(world[0].gather->barrier_async({}, seconds(1))),
              ::testing::HasSubstr("own name"));
  const auto unknown = world[0].gather->barrier_async({"a", "x"}, seconds(1));
  world.run();
  EXPECT_THAT(error_of(unknown), ::testing::HasSubstr("no worker is called 'x'"));
}

TEST(GatherTest, LostMemberFailsAll) {
  GatherWorld world(kAll);
  const auto a = world[0].gather->barrier_async(kAll, seconds(5));
  const auto b = world[1].gather->barrier_async(kAll, seconds(5));
  world.run();
  world.lose(2);
  world.run();
  EXPECT_EQ(error_of(a), "worker 'c' was lost during a gather of 'a', 'b', 'c'");
  EXPECT_THAT(error_of(b), ::testing::HasSubstr("worker 'c' was lost"));
  EXPECT_EQ(to_status(b.error()).code(), absl::StatusCode::kUnavailable);
  const auto next = world[0].gather->barrier_async(kAll, seconds(5));
  const auto without = world[0].gather->barrier_async({"a", "b"}, seconds(5));
  const auto without_b = world[1].gather->barrier_async({"a", "b"}, seconds(5));
  world.run();
  EXPECT_THAT(error_of(next), ::testing::HasSubstr("worker 'c' is lost"));
  EXPECT_EQ(error_of(without), "ok");
  EXPECT_EQ(error_of(without_b), "ok");
}

TEST(GatherTest, LostLeaderFailsAll) {
  GatherWorld world(kAll);
  const auto b = world[1].gather->barrier_async(kAll, seconds(5));
  const auto c = world[2].gather->barrier_async(kAll, seconds(5));
  world.run();
  world.lose(0);
  world.run();
  for (const auto* each : {&b, &c}) {
    EXPECT_THAT(error_of(*each), ::testing::HasSubstr("'a'"));
    EXPECT_EQ(to_status(each->error()).code(), absl::StatusCode::kUnavailable);
  }
}

TEST(GatherTest, ANewIncarnationStartsAfresh) {
  GatherWorld world(kAll);
  for (int i = 0; i < 3; ++i) {
    for (const auto& worker : world.workers) worker->gather->barrier_async(kAll, seconds(5));
    world.run();
  }
  world.lose(2);
  const WorkerInfo fresh{"c", 2, {33}};
  world.workers.push_back(std::make_unique<GatherWorker>(world.network, world.scheduler, fresh));
  for (const auto& worker : world.workers) {
    std::vector<Member> members = world[0].directory.members();
    members[2] = {fresh, "at:c", 0};
    worker->directory.replace(2, members);
  }
  std::vector<Future<void>> results;
  for (int i : {3, 1, 0}) results.push_back(world[i].gather->barrier_async(kAll, seconds(5)));
  world.run();
  for (const auto& each : results) EXPECT_EQ(error_of(each), "ok");
}

TEST(GatherTest, TolerantGatherGoesOnWithoutTheLost) {
  GatherWorld world(kAll);
  const auto a = world[0].gather->all_gather_async(kAll, "A", seconds(5), LossMode::kTolerate);
  const auto b = world[1].gather->all_gather_async(kAll, "B", seconds(5), LossMode::kTolerate);
  world.run();
  EXPECT_FALSE(a.done());
  world.lose(2);
  world.run();
  ASSERT_EQ(error_of(a), "ok");
  ASSERT_EQ(error_of(b), "ok");
  EXPECT_EQ(a.value(), (Values{"A", "B", ""}));
  EXPECT_EQ(b.value(), a.value());
}

TEST(GatherTest, TolerantGatherSurvivesItsLeader) {
  GatherWorld world(kAll);
  const auto b = world[1].gather->all_gather_async(kAll, "B", seconds(5), LossMode::kTolerate);
  const auto c = world[2].gather->all_gather_async(kAll, "C", seconds(5), LossMode::kTolerate);
  world.run();
  world.lose(0);
  world.run();
  ASSERT_EQ(error_of(b), "ok");
  EXPECT_EQ(b.value(), (Values{"", "B", "C"}));
  EXPECT_EQ(c.value(), b.value());
  // Only c has heard that the next one is lost when b asks.
  world.lose(1);
  const auto again = world[2].gather->all_gather_async(kAll, "C2", seconds(5), LossMode::kTolerate);
  world.run();
  EXPECT_EQ(again.value(), (Values{"", "", "C2"}));
}

// The leader answers some, or none, or all, and dies at any moment, and messages overtake each
// other: those who are left all get a result, the same one, or the same without what nobody living
// knows.
TEST(GatherTest, AllWhoLiveGetTheSameWhenTheLeaderDies) {
  const Names all = {"a", "b", "c", "d", "e"};
  std::uint32_t full = 0;
  std::uint32_t partial = 0;
  const auto seeds = static_cast<std::uint32_t>(repetitions(2000));
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    GatherWorld world(all, seed);
    std::vector<Future<Values>> results;
    for (std::size_t i = 0; i < all.size(); ++i) {
      results.push_back(
          world[i].gather->all_gather_async(all, all[i], seconds(60), LossMode::kTolerate));
    }
    // Dies at a random point of the exchange: as one of the tasks in the random order.
    const std::size_t victims = 1 + random() % 2;
    for (std::size_t victim = 0; victim < victims; ++victim) {
      auto die = std::make_shared<std::function<void(int)>>();
      *die = [&world, victim, weak = std::weak_ptr(die)](int left) {
        if (left == 0) {
          world.lose(victim);
          return;
        }
        const auto self = weak.lock();
        world.runner->post([self, left] { (*self)(left - 1); });
      };
      world.runner->post([die, left = static_cast<int>(random() % 30)] { (*die)(left); });
    }
    world.advance(milliseconds(100));
    std::optional<Values> agreed;
    for (std::size_t i = victims; i < all.size(); ++i) {
      ASSERT_EQ(error_of(results[i]), "ok") << "at " << all[i];
      const Values& got = results[i].value();
      if (!agreed) agreed = got;
      EXPECT_EQ(got, *agreed) << "at " << all[i];
      for (std::size_t j = victims; j < all.size(); ++j) EXPECT_EQ(got[j], all[j]);
    }
    (*agreed)[0].empty() ? ++partial : ++full;
  }
  EXPECT_GT(full, seeds / 100) << "the leader always died first";
  EXPECT_GT(partial, seeds / 100) << "the leader never died first";
}

std::string request_for(const std::string& names, const std::string& name, std::uint64_t sequence) {
  proto::GatherRequest message;
  message.set_names(names);
  message.set_name(name);
  message.set_sequence(sequence);
  return message.SerializeAsString();
}

TEST(GatherTest, WhoAsksAgainGetsTheOutcome) {
  const Names all = {"a", "b", "c", "d", "e", "f", "g", "h"};
  GatherWorld world(all);
  // All sets of which both a and b are: as many as are remembered.
  std::vector<Names> sets;
  for (std::size_t others = 0; others < 64; ++others) {
    Names& set = sets.emplace_back(Names{"a", "b"});
    for (std::size_t i = 2; i < all.size(); ++i) {
      if ((others >> (i - 2) & 1) != 0) set.push_back(all[i]);
    }
  }
  const auto gather = [&](const Names& set) {
    for (const auto& worker : world.workers) {
      if (std::find(set.begin(), set.end(), worker->self.name) == set.end()) continue;
      worker->gather->all_gather_async(set, worker->self.name, seconds(5), LossMode::kTolerate);
    }
    world.run();
  };
  const auto ask = [&](const Names& set) {
    const auto reply = world[0].plane.control_call(
        world[1].self, "sinew.gather", request_for(absl::StrJoin(set, ","), "a", 0), seconds(1));
    world.run();
    return reply;
  };
  for (const Names& set : sets) gather(set);
  for (const Names& set : sets) {
    proto::GatherResponse response;
    ASSERT_EQ(error_of(ask(set)), "ok");
    ASSERT_TRUE(response.ParseFromString(ask(set).value()));
    EXPECT_EQ(Values(response.values().begin(), response.values().end()), set);
  }
  // One more takes the place of the one that was used first.
  gather({"b", "c"});
  EXPECT_EQ(error_of(ask(sets.front())), "this gather of 'a', 'b' is over");
  EXPECT_EQ(error_of(ask(sets[1])), "ok");
}

// All have had the leader's answer: nobody has a reason to ask it. What its followers keep, for
// those who do not get that answer, is bounded (GatherHistories::kBytes).
TEST(GatherTest, ValuesOfAGatherThatToleratesNoLossAreNotKeptByItsLeader) {
  std::string asked;
  {
    GatherWorld world(kAll);
    world[0].plane.add_control_method("sinew.gather", [&](const WorkerInfo&, std::string body) {
      asked = std::move(body);
      return make_failed_future<std::string>(make_error(absl::UnavailableError("it only looks")));
    });
    world[1].gather->all_gather_async(kAll, "B", seconds(5), LossMode::kFail);
    world.run();
  }
  GatherWorld world(kAll);
  for (const auto& worker : world.workers) {
    worker->gather->all_gather_async(kAll, "x", seconds(5), LossMode::kFail);
  }
  world.run();
  const auto reply = world[1].plane.control_call(world[0].self, "sinew.gather", asked, seconds(1));
  world.run();
  EXPECT_EQ(error_of(reply), "this gather of 'a', 'b', 'c' is over");
}

// And the latest of the others, since they may have come to a gather before.
TEST(GatherTest, ThoseWhomAListNamesAreRememberedAsLost) {
  GatherWorld world(kAll);
  const std::vector<Member> all = world[0].directory.members();
  world.tell_lost(world[1].self);
  world.tell_lost(world[2].self);
  world.run();
  const auto lost = world[0].gather->barrier_async({"a", "c"}, seconds(5));
  world.run();
  EXPECT_THAT(error_of(lost), ::testing::HasSubstr("worker 'c' is lost"));
  world[0].directory.replace(2, {all[0], all[1]});
  for (std::uint64_t i = 0; i < Departures::kMost; ++i) world.tell_lost({"x", 7, {100 + i}});
  world.run();
  world[0].directory.replace(3, all);
  const auto known = world[0].gather->barrier_async({"a", "b"}, seconds(5));
  const auto forgotten = world[0].gather->barrier_async({"a", "c"}, seconds(5));
  world.run();
  EXPECT_THAT(error_of(known), ::testing::HasSubstr("worker 'b' is lost"));
  EXPECT_EQ(error_of(forgotten), "pending");
}

TEST(GatherTest, HostileRequestsAreRefused) {
  GatherWorld world(kAll);
  const auto code_of = [&](const std::string& body) {
    const auto reply = world[1].plane.control_call(world[0].self, "sinew.gather", body, seconds(1));
    world.run();
    if (!reply.done()) return absl::StatusCode::kOk;
    return to_status(reply.error()).code();
  };
  const std::uint64_t strict = std::uint64_t{1} << 32;
  EXPECT_EQ(code_of("\xff\xff"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(request_for("a,c", "c", strict)), absl::StatusCode::kPermissionDenied)
      << "as another";
  EXPECT_EQ(code_of(request_for("a,c", "b", strict)), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(code_of(request_for("b,c", "b", strict)), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(code_of(request_for("b,a", "b", strict)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(request_for("a,b,b", "b", strict)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(request_for("", "b", strict)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(request_for("a,b,b*", "b", strict)), absl::StatusCode::kInvalidArgument);
  // Gathers that we never join are bounded.
  for (std::uint64_t i = 0; i < 1024; ++i) {
    ASSERT_EQ(code_of(request_for("a,b", "b", strict + i)), absl::StatusCode::kOk) << "it waits";
  }
  EXPECT_EQ(code_of(request_for("a,b", "b", strict + 1024)), absl::StatusCode::kResourceExhausted);
  world.tell_lost(world[1].self);
  world.run();
  EXPECT_EQ(code_of(request_for("a,b", "b", strict + 1024)), absl::StatusCode::kOk) << "freed";
}

// Over real threads: for ThreadSanitizer, and for what no single thread can show.
TEST(GatherThreadsTest, BarriersFromSeveralThreadsOfSeveralWorkers) {
  Executor executor({});
  TimerQueue timers;
  FakeControlNetwork network(executor.runner(), timers, Clock::system());
  Scheduler scheduler(executor, timers, Clock::system());
  std::vector<std::unique_ptr<GatherWorker>> workers;
  std::vector<Member> members;
  for (int i = 0; i < 3; ++i) {
    const WorkerInfo info{kAll[i], i, {static_cast<std::uint64_t>(i + 1)}};
    workers.push_back(std::make_unique<GatherWorker>(network, scheduler, info));
    members.push_back({info, "at:" + info.name, 0});
  }
  for (const auto& worker : workers) worker->directory.replace(1, members);
  std::atomic<int> passed{0};
  std::vector<std::thread> threads;
  for (const auto& worker : workers) {
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&passed, gather = worker->gather.get()] {
        for (int i = 0; i < 20; ++i) {
          gather->barrier_async(kAll, seconds(60)).wait();
          ++passed;
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(passed, 180);
  executor.shutdown();
}

}  // namespace
}  // namespace sinew::internal
