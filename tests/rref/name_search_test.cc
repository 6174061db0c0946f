// How named objects are found: in every order of events, and what is said of it.

#include "sinew/rref/internal/name_search.h"

#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rref/internal/name_table.h"
#include "sinew/tests/rref/name_model.h"

namespace sinew::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;
using Fate = NameSearch::Fate;
using Kind = NameSearch::Step::Kind;
using TimePoint = NameSearch::TimePoint;

TEST(NameExploration, EveryOrderOfEventsKeepsTheRules) {
  for (const sim::NameWorld& world : sim::kNameWorlds) {
    std::size_t states = 0;
    EXPECT_EQ(sim::explore(world, &states), "") << world.name;
    EXPECT_GT(states, 50u) << world.name;
    RecordProperty(world.name, static_cast<int>(states));
  }
}

const WorkerInfo kLearner{"learner", 1, {10}};

TEST(NameSearch, AQuestionIsHeldUntilShortlyBeforeTheDeadline) {
  const TimePoint begin;
  NameSearch search("learner", "agent", begin, begin + 30s);
  EXPECT_EQ(search.begin().kind, Kind::kSeek);
  auto step = search.on_member(kLearner, begin + 5s);
  EXPECT_EQ(step.kind, Kind::kAsk);
  EXPECT_EQ(step.worker, kLearner);
  EXPECT_EQ(step.hold, 24s);
  step = search.on_absent({"agnet"}, 1, begin + 29s);
  EXPECT_EQ(step.kind, Kind::kAsk);
  EXPECT_EQ(step.hold, 1s);
  step = search.on_ask_failed(absl::DeadlineExceededError(""), Fate::kMayLive, begin + 30s);
  EXPECT_EQ(step.kind, Kind::kFail);
  EXPECT_TRUE(absl::IsDeadlineExceeded(step.error));
  EXPECT_EQ(step.error.message(),
            "'learner/agent' was not found within 30 s: worker 'learner' is there, but has "
            "published no 'agent'; it has 'agnet'");
}

TEST(NameSearch, AShortOneHasAShortMargin) {
  NameSearch search("learner", "agent", TimePoint(), TimePoint() + 80ms);
  search.begin();
  EXPECT_EQ(search.on_member(kLearner, TimePoint()).hold, 70ms);
}

TEST(NameSearch, NobodyKeepsAQuestionForLong) {
  NameSearch search("learner", "agent", TimePoint(), TimePoint::max());
  search.begin();
  EXPECT_EQ(search.on_member(kLearner, TimePoint()).hold, NameSearch::kMostHold);
  EXPECT_EQ(search.on_absent({}, 0, TimePoint() + 1min).kind, Kind::kAsk);
}

TEST(NameSearch, ErrorsSayWhichPartIsMissing) {
  const TimePoint begin;
  const auto overdue = absl::DeadlineExceededError("waited for it");
  NameSearch search("learner", "agent", begin, begin + 30s);
  search.begin();
  EXPECT_EQ(NameSearch(search).on_seek_failed(overdue, begin + 30s).error.message(),
            "'learner/agent' was not found: waited for it");
  search.on_member(kLearner, begin);
  EXPECT_THAT(
      std::string(
          NameSearch(search).on_ask_failed(overdue, Fate::kMayLive, begin + 30s).error.message()),
      HasSubstr("is there, but has not answered in time"));
  NameSearch empty = search;
  empty.on_absent({}, 0, begin + 29s);
  EXPECT_THAT(
      std::string(empty.on_ask_failed(overdue, Fate::kMayLive, begin + 30s).error.message()),
      HasSubstr("is there, but has published nothing"));
  NameSearch many = search;
  many.on_absent({"a", "b"}, 7, begin + 29s);
  EXPECT_THAT(std::string(many.on_ask_failed(overdue, Fate::kMayLive, begin + 30s).error.message()),
              HasSubstr("it has 'a', 'b' and 5 more"));
  search.on_ask_failed(absl::UnavailableError("its process has ended"), Fate::kLost, begin + 2s);
  EXPECT_THAT(std::string(search.on_seek_failed(overdue, begin + 30s).error.message()),
              HasSubstr("it was asked before, in vain: its process has ended"));
}

TEST(NameSearch, OneThatCannotBeReachedIsAskedAgainLessAndLessOften) {
  TimePoint now;
  NameSearch search("learner", "agent", now, now + 1h);
  search.begin();
  search.on_member(kLearner, now);
  std::vector<NameSearch::Duration> pauses;
  for (int turn = 0; turn < 8; ++turn) {
    const auto step = search.on_ask_failed(absl::UnavailableError("silent"), Fate::kMayLive, now);
    EXPECT_EQ(step.kind, Kind::kSeek);
    EXPECT_EQ(step.worker, kLearner) << "another one is as welcome";
    pauses.push_back(step.hold);
    now += step.hold;
    EXPECT_EQ(search.on_seek_failed(absl::DeadlineExceededError(""), now).kind, Kind::kAsk);
  }
  EXPECT_THAT(pauses, ElementsAre(200ms, 400ms, 800ms, 1600ms, 3200ms, 5s, 5s, 5s));
  search.on_absent({}, 0, now + 1min);
  EXPECT_EQ(search.on_ask_failed(absl::UnavailableError(""), Fate::kMayLive, now).hold, 200ms);
}

// ---- The owner's side.

NameTable::Object object(std::string type) {
  // Never looked at.
  static int any = 0;
  return {std::shared_ptr<ReferenceHandle>(std::shared_ptr<void>(),
                                           reinterpret_cast<ReferenceHandle*>(&any)),
          std::move(type)};
}

TEST(NameTable, ANameIsTakenOnceUnlessItIsReplaced) {
  NameTable table;
  ASSERT_TRUE(table.publish("agent", object("A"), WhenTaken::kFail).ok());
  const auto taken = table.publish("agent", object("B"), WhenTaken::kFail);
  EXPECT_TRUE(absl::IsAlreadyExists(taken.status()));
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("published already, as a A"));
  const auto replaced = table.publish("agent", object("B"), WhenTaken::kReplace);
  ASSERT_TRUE(replaced.ok());
  EXPECT_NE(replaced->dropped, nullptr);
  EXPECT_TRUE(table.find("agent", "B").ok());
  EXPECT_EQ(table.size(), 1u);
  EXPECT_NE(table.unpublish("agent"), nullptr);
  EXPECT_EQ(table.unpublish("agent"), nullptr);
  EXPECT_FALSE(table.contains("agent"));
}

TEST(NameTable, WhatIsNotThereOrOfAnotherTypeSaysSo) {
  NameTable table;
  EXPECT_THAT(std::string(table.find("agent", "A").status().message()), HasSubstr("none"));
  ASSERT_TRUE(table.publish("agent", object("A"), WhenTaken::kFail).ok());
  ASSERT_TRUE(table.publish("replay", object("A"), WhenTaken::kFail).ok());
  EXPECT_TRUE(absl::IsNotFound(table.find("agnet", "A").status()));
  EXPECT_THAT(std::string(table.find("agnet", "A").status().message()),
              HasSubstr("nothing is published as 'agnet'; published: 'agent', 'replay'"));
  EXPECT_TRUE(absl::IsInvalidArgument(table.find("agent", "B").status()));
  EXPECT_THAT(std::string(table.find("agent", "B").status().message()),
              HasSubstr("is a A, but was sought as a B"));
  EXPECT_THAT(table.nearest("agnet"), ElementsAre("agent", "replay"));
}

TEST(NameTable, APublicationEndsTheWaitsForItsName) {
  NameTable table;
  const auto first = table.wait("agent", {1});
  const auto second = table.wait("agent", {2});
  const auto other = table.wait("replay", {1});
  ASSERT_TRUE(first.ok() && second.ok() && other.ok());
  const auto changed = table.publish("agent", object("A"), WhenTaken::kFail);
  EXPECT_THAT(changed->satisfied, ElementsAre(*first, *second));
  EXPECT_EQ(table.waiters(), 1u);
  EXPECT_FALSE(table.end_wait(*first));
  EXPECT_THAT(table.end_waits_of({2}), IsEmpty());
  EXPECT_THAT(table.end_waits_of({1}), ElementsAre(*other));
  EXPECT_EQ(table.waiters(), 0u);
}

TEST(NameTable, OneWorkerMayHaveSoManyWaiting) {
  NameTable table;
  std::vector<NameTable::WaiterId> waiters;
  for (std::size_t i = 0; i < NameTable::kMostWaitersOfOne; ++i) {
    waiters.push_back(*table.wait("agent", {1}));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(table.wait("agent", {1}).status()));
  EXPECT_TRUE(table.wait("agent", {2}).ok()) << "that is none of the others' business";
  EXPECT_TRUE(table.end_wait(waiters.back()));
  EXPECT_TRUE(table.wait("agent", {1}).ok());
  const NameTable::Remains remains = table.clear();
  EXPECT_EQ(remains.waiters.size(), NameTable::kMostWaitersOfOne + 1);
  EXPECT_TRUE(table.wait("agent", {1}).ok());
}

TEST(NameTable, NamesAreChecked) {
  EXPECT_TRUE(validate_object_name("agent_2.of:a-b").ok());
  for (const std::string& name :
       {std::string(), std::string("a/b"), std::string("a b"), std::string("a\n"),
        std::string("\xff"), std::string(1, '\0'), std::string(129, 'a')}) {
    EXPECT_TRUE(absl::IsInvalidArgument(validate_object_name(name))) << name;
  }
}

}  // namespace
}  // namespace sinew::internal
