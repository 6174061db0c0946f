// Leaving is not losing: who has come to a gather has come, and one that was complete stays so.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "sinew/membership.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/peer_gather.h"
#include "sinew/tests/rpc/gather_world.h"
#include "sinew/tests/support/repetitions.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::repetitions;
using Names = std::vector<std::string>;
using Values = std::vector<std::string>;

const Names kFive = {"a", "b", "c", "d", "e"};

/// Goes as far as the test says; everyone gives its name.
class LeavingWorld : public GatherWorld {
 public:
  using GatherWorld::GatherWorld;

  Future<Values> join(std::size_t index, const Names& names) {
    GatherWorker& worker = *workers[index];
    return worker.gather->all_gather_async(names, worker.self.name, seconds(60), LossMode::kFail);
  }
  /// Its connections end, the list of members does without it, and all are told.
  void depart(std::size_t index, Departure how) {
    const WorkerInfo gone = workers[index]->self;
    network.kill(workers[index]->plane.address());
    workers[index]->gather.reset();
    for (const auto& worker : workers) {
      if (worker->gather) worker->gather->on_worker_gone(gone, how);
    }
    take_off_the_list(gone);
    tell_lost(gone, how);
  }
  /// The list has another one of its name.
  void replace(std::size_t index) {
    WorkerInfo next = workers[index]->self;
    next.incarnation.value += 100;
    take_off_the_list(workers[index]->self, Member{next, "at:next"});
  }
  /// Runs `step` as one of the tasks, once `when` holds and after some more of them.
  void post_when(std::function<bool()> when, int tasks, std::function<void()> step) {
    runner->post([this, when = std::move(when), tasks, step = std::move(step)]() mutable {
      if (!when()) return post_when(std::move(when), tasks, std::move(step));
      if (tasks > 0) return post_when(std::move(when), tasks - 1, std::move(step));
      step();
    });
  }

 private:
  void take_off_the_list(const WorkerInfo& gone, const std::optional<Member>& next = {}) {
    ++version_;
    for (const auto& worker : workers) {
      std::vector<Member> members;
      for (const Member& member : worker->directory.members()) {
        if (member.worker != gone) members.push_back(member);
      }
      if (next.has_value()) members.push_back(*next);
      worker->directory.replace(version_, members);
    }
  }

  std::uint64_t version_ = 1;
};

class GatherDepartureTest : public ::testing::TestWithParam<Departure> {};
INSTANTIATE_TEST_SUITE_P(By, GatherDepartureTest,
                         ::testing::Values(Departure::kLeft, Departure::kLost),
                         [](const auto& how) {
                           return how.param == Departure::kLeft ? "Leaving" : "Loss";
                         });

TEST_P(GatherDepartureTest, WhoHasComeCountsWhenTheLeaderJoinsAfterItsEnd) {
  LeavingWorld world(kAll);
  const auto b = world.join(1, kAll);
  const auto c = world.join(2, kAll);
  world.run();
  world.depart(2, GetParam());
  world.run();
  EXPECT_FALSE(b.done());
  const auto a = world.join(0, kAll);
  world.run();
  ASSERT_EQ(error_of(a), "ok");
  EXPECT_EQ(a.value(), kAll);
  EXPECT_EQ(error_of(b), "ok");
}

TEST_P(GatherDepartureTest, WhoJoinsAfterTheEndOfOneThatHasComeIsCountedIn) {
  LeavingWorld world(kAll);
  world.join(2, kAll);
  world.run();
  world.depart(2, GetParam());
  world.run();
  const auto b = world.join(1, kAll);
  const auto a = world.join(0, kAll);
  world.run();
  EXPECT_EQ(error_of(a), "ok");
  EXPECT_EQ(error_of(b), "ok");
}

// Each of them is counted as the one that it was.
TEST_P(GatherDepartureTest, SeveralGathersToWhichOneHadComeAreKeptApart) {
  LeavingWorld world(kAll);
  for (int i = 0; i < 3; ++i) {
    for (std::size_t worker = 0; worker < 3; ++worker) world.join(worker, kAll);
    world.run();
  }
  for (int i = 0; i < 2; ++i) {
    world[2].gather->all_gather_async(kAll, absl::StrCat("c", i), seconds(60), LossMode::kFail);
  }
  world.run();
  world.depart(2, GetParam());
  world.run();
  for (int i = 0; i < 2; ++i) {
    const auto b = world.join(1, kAll);
    const auto a = world.join(0, kAll);
    world.run();
    ASSERT_EQ(error_of(a), "ok");
    EXPECT_EQ(a.value(), (Values{"a", "b", absl::StrCat("c", i)}));
    EXPECT_EQ(error_of(b), "ok");
  }
  const auto b = world.join(1, kAll);
  world.run();
  EXPECT_THAT(error_of(b), HasSubstr("worker 'c'")) << "it has not come to this one";
}

TEST_P(GatherDepartureTest, WhoHadNotComeFailsItAndIsNamed) {
  LeavingWorld world(kAll);
  const auto a = world.join(0, kAll);
  const auto b = world.join(1, kAll);
  world.run();
  world.depart(2, GetParam());
  world.run();
  const std::string text = GetParam() == Departure::kLeft
                               ? "worker 'c' has left the job during a gather of 'a', 'b', 'c'"
                               : "worker 'c' was lost during a gather of 'a', 'b', 'c'";
  EXPECT_EQ(error_of(a), text);
  EXPECT_EQ(error_of(b), "gather led by 'a': " + text);
  EXPECT_EQ(to_status(b.error()).code(), absl::StatusCode::kUnavailable);
}

TEST_P(GatherDepartureTest, WhoHadNotComeFailsItAlsoBeforeTheLeaderHasJoined) {
  LeavingWorld world(kAll);
  const auto b = world.join(1, kAll);
  world.run();
  world.depart(2, GetParam());
  world.run();
  EXPECT_THAT(error_of(b), HasSubstr("worker 'c'"));
  // Nor does anybody wait for the leader who comes later, or the leader for anybody.
  const auto again = world.join(1, kAll);
  world.run();
  EXPECT_THAT(error_of(again), HasSubstr("worker 'c'"));
  const auto a = world.join(0, kAll);
  world.run();
  EXPECT_THAT(error_of(a), HasSubstr("worker 'c'"));
  EXPECT_EQ(to_status(a.error()).code(), absl::StatusCode::kUnavailable);
}

TEST_P(GatherDepartureTest, ALeaderThatGoesBeforeAllHaveComeFailsIt) {
  LeavingWorld world(kAll);
  const auto b = world.join(1, kAll);
  world.run();
  world.depart(0, GetParam());
  world.run();
  EXPECT_THAT(error_of(b), HasSubstr("worker 'a'"));
  const auto c = world.join(2, kAll);
  world.run();
  EXPECT_THAT(error_of(c), HasSubstr("worker 'a'"));
  EXPECT_EQ(to_status(c.error()).code(), absl::StatusCode::kUnavailable);
}

// Neither as the leader nor as another one does it blame those who did not come.
TEST(GatherLeavingTest, WhoIsOutOfTheJobEndsItsGathersWithThat) {
  for (const std::size_t out : {std::size_t{0}, std::size_t{1}}) {
    LeavingWorld world(kAll);
    const auto waits = world.join(out, kAll);
    world.run();
    ASSERT_EQ(error_of(waits), "pending");
    world[out].gather->end(absl::AbortedError("evicted"));
    world.depart(2, Departure::kLost);
    world.run();
    EXPECT_EQ(error_of(waits), "evicted");
    EXPECT_EQ(to_status(waits.error()).code(), absl::StatusCode::kAborted);
  }
}

TEST(GatherLeavingTest, OneThatHasComeAndLeavesDoesNotFailItAndALossDoes) {
  for (const Departure how : {Departure::kLeft, Departure::kLost}) {
    LeavingWorld world(kAll);
    const auto a = world.join(0, kAll);
    world.join(2, kAll);
    world.run();
    world.depart(2, how);
    world.run();
    if (how == Departure::kLost) {
      EXPECT_EQ(error_of(a), "worker 'c' was lost during a gather of 'a', 'b', 'c'");
      continue;
    }
    EXPECT_EQ(error_of(a), "pending");
    const auto b = world.join(1, kAll);
    world.run();
    EXPECT_EQ(error_of(a), "ok");
    EXPECT_EQ(error_of(b), "ok");
  }
}

// All have come; then one leaves as soon as it has passed, and messages overtake each other.
TEST(GatherLeavingTest, AllPassWhoeverLeavesAsSoonAsItHasPassed) {
  const auto seeds = static_cast<std::uint32_t>(repetitions(2000));
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    LeavingWorld world(kFive, seed);
    std::vector<Future<Values>> results;
    for (std::size_t i = 0; i < kFive.size(); ++i) results.push_back(world.join(i, kFive));
    // The leader says goodbye: what it has answered still comes, whoever hears of that before.
    // A follower has nothing to say any more.
    const std::size_t leaver = random() % kFive.size();
    world.post_when([&] { return results[leaver].done(); }, static_cast<int>(random() % 8),
                    [&] {
                      if (leaver == 0) return world.tell_lost(world[0].self, Departure::kLeft);
                      world.depart(leaver, random() % 2 == 0 ? Departure::kLeft : Departure::kLost);
                    });
    world.run();
    for (std::size_t i = 0; i < kFive.size(); ++i) {
      ASSERT_EQ(error_of(results[i]), "ok") << kFive[i] << ", when " << kFive[leaver] << " left";
      EXPECT_EQ(results[i].value(), kFive);
    }
  }
}

// The leader answers some, or none, or all, and dies at any moment, perhaps with the one that asks
// in its place: those who are left all pass, or all fail and name one that is lost, at once.
TEST(GatherLeavingTest, WhatALeaderThatDiesHasAnsweredAnybodyHoldsForAll) {
  std::uint32_t passed = 0;
  std::uint32_t failed = 0;
  const auto seeds = static_cast<std::uint32_t>(repetitions(3000));
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    LeavingWorld world(kFive, seed);
    std::vector<Future<Values>> results;
    for (std::size_t i = 0; i < kFive.size(); ++i) results.push_back(world.join(i, kFive));
    const std::size_t victims = 1 + random() % 2;
    for (std::size_t victim = 0; victim < victims; ++victim) {
      world.post_when([] { return true; }, static_cast<int>(random() % 30),
                      [&world, victim] { world.depart(victim, Departure::kLost); });
    }
    world.run();
    std::optional<bool> passes;
    for (std::size_t i = victims; i < kFive.size(); ++i) {
      ASSERT_TRUE(results[i].done()) << "at " << kFive[i];
      const bool ok = results[i].error() == nullptr;
      if (!passes) passes = ok;
      ASSERT_EQ(ok, *passes) << "at " << kFive[i] << ": " << error_of(results[i]);
      if (ok) {
        EXPECT_EQ(results[i].value(), kFive);
      } else {
        // It may be off the list before it is said to be lost.
        EXPECT_THAT(to_status(results[i].error()).code(),
                    ::testing::AnyOf(absl::StatusCode::kUnavailable, absl::StatusCode::kNotFound));
        EXPECT_THAT(error_of(results[i]), ::testing::AnyOf(HasSubstr("'a'"), HasSubstr("'b'")));
      }
    }
    ++(*passes ? passed : failed);
  }
  EXPECT_GT(passed, seeds / 100) << "the leader always died first";
  EXPECT_GT(failed, seeds / 100) << "the leader never died first";
}

// For b alone the leader is gone: it asks c, whose answer may still be on its way. When the leader
// is gone for c too, neither waits for the other.
TEST(GatherLeavingTest, WhoLeadsInThePlaceOfALostLeaderWaitsForAnAnswerOnItsWay) {
  for (const bool arrives : {true, false}) {
    LeavingWorld world(kAll);
    const Promise<std::string> answer(nullptr);
    world[0].plane.add_control_method("sinew.gather", [&](const WorkerInfo& from, std::string) {
      if (from.name == "c") return answer.future();
      return make_failed_future<std::string>(make_error(absl::UnavailableError("the link broke")));
    });
    const auto b = world.join(1, kAll);
    const auto c = world.join(2, kAll);
    world.run();
    EXPECT_EQ(error_of(b), "pending");
    EXPECT_EQ(error_of(c), "pending");
    if (arrives) {
      proto::GatherResponse response;
      for (const std::string& name : kAll) response.add_values(name);
      answer.set_value(response.SerializeAsString());
    } else {
      answer.set_error(make_error(absl::UnavailableError("the link broke here too")));
    }
    world.run();
    const std::string expected =
        arrives ? "ok" : "worker 'a' was lost during a gather of 'a', 'b', 'c'";
    EXPECT_EQ(error_of(b), expected);
    EXPECT_EQ(error_of(c), expected);
  }
}

// Between the call and the gather's thread the list may change.
TEST(GatherLeavingTest, WhoTheNamesAreIsSettledByTheCall) {
  LeavingWorld world(kAll);
  const auto a = world.join(0, kAll);
  const auto b = world.join(1, kAll);
  world.depart(2, Departure::kLost);
  world.run();
  EXPECT_THAT(error_of(a), HasSubstr("worker 'c' was lost during a gather of 'a', 'b', 'c'"));
  EXPECT_THAT(error_of(b), HasSubstr(error_of(a)));

  LeavingWorld other(kAll);
  const WorkerInfo old = other[2].self;
  const auto begun = other.join(0, kAll);
  other.replace(2);
  other.run();
  EXPECT_EQ(error_of(begun), "pending");
  other.tell_lost(old);
  other.run();
  EXPECT_THAT(error_of(begun), HasSubstr("worker 'c' was lost")) << "it waits for the new one";
}

// The job does without it, and it does not know that yet: it is not to hear of its own loss as
// somebody else's, which it would before its eviction as long as its links are up.
TEST(GatherLeavingTest, WhoIsTakenForLostHearsOfItByTheEndOfItsLink) {
  LeavingWorld world(kAll);
  const auto a = world.join(0, kAll);
  const auto c = world.join(2, kAll);
  world.run();
  for (const std::size_t index : {0U, 1U}) {
    world[index].gather->on_worker_gone(world[2].self, Departure::kLost);
  }
  world.run();
  EXPECT_THAT(error_of(a), HasSubstr("worker 'c' was lost"));
  EXPECT_EQ(error_of(c), "pending");
  world[2].gather->end(absl::AbortedError("worker 'c' was evicted"));
  world.run();
  EXPECT_EQ(error_of(c), "worker 'c' was evicted");
}

// What a departed worker has sent is bounded, as is what is kept of the departed.
TEST(GatherLeavingTest, GathersOfTheDepartedAreForgottenInTime) {
  LeavingWorld world(kAll);
  const auto b = world.join(1, kAll);
  world.join(2, kAll);
  world.run();
  world.depart(2, Departure::kLeft);
  world.run();
  EXPECT_EQ(error_of(b), "pending");
  for (std::uint64_t i = 0; i < 64; ++i) {
    world.tell_lost({absl::StrCat("x", i), 7, {100 + i}});
  }
  world.run();
  EXPECT_TRUE(b.done()) << "nobody knows any more who c was";
  const auto a = world.join(0, kAll);
  world.run();
  EXPECT_THAT(error_of(a), HasSubstr("no worker is called 'c'"));
}

}  // namespace
}  // namespace sinew::internal
