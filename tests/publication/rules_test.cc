// The rules of publications: in every order of events of small worlds, and in a long random run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sinew/tests/publication/model.h"

namespace sinew::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

TEST(PublicationRules, EveryOrderOfEventsKeepsThem) {
  for (const sim::PublicationWorld& world : sim::kPublicationWorlds) {
    std::size_t states = 0;
    EXPECT_EQ(sim::explore(world, &states), "") << world.name;
    RecordProperty(world.name, static_cast<int>(states));
    std::cout << world.name << ": " << states << " states" << std::endl;
  }
}

TEST(PublicationRules, TenThousandKillsMakeNoMixture) {
  std::size_t kills = 0;
  std::uint64_t switches = 0;
  std::size_t settled = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const sim::SimulationResult result = sim::simulate(sim::kManyReaders, seed, 2500);
    EXPECT_EQ(result.fault, "") << "seed " << seed;
    kills += result.kills;
    switches += result.switches;
    settled += result.settled;
  }
  EXPECT_GE(kills, 10'000U);
  std::cout << kills << " kills, " << switches << " switches, " << settled << " times at rest"
            << std::endl;
}

// ---- The writer's table.

PublicationTable::Ask ask(std::uint64_t reader, std::string pod, VersionLabel has = {},
                          std::uint64_t failed = 0) {
  return {reader, std::move(pod), std::move(has), failed};
}
std::vector<std::uint64_t> sources(const PublicationTable::Answers& answers) {
  std::vector<std::uint64_t> all;
  for (const auto& each : answers) all.push_back(each.source);
  return all;
}

TEST(PublicationTable, AHostGetsTheBytesOnce) {
  PublicationTable table(7, "w", 4, 0);
  PublicationTable::Answers answers;
  table.on_published(table.reserve(), "one", {}, answers);
  table.on_ask(ask(10, "a"), {}, answers);
  EXPECT_THAT(sources(answers), ElementsAre(PublicationTable::kWriter));
  EXPECT_FALSE(answers[0].is_shared);
  answers.clear();
  table.on_ask(ask(11, "a"), {}, answers);
  table.on_ask(ask(12, "a"), {}, answers);
  EXPECT_THAT(answers, IsEmpty()) << "they wait for the first one";
  table.on_ask(ask(10, "a", table.current()), {}, answers);
  EXPECT_THAT(sources(answers), ElementsAre(10, 10));
  EXPECT_TRUE(answers[0].is_shared && answers[1].is_shared);
  answers.clear();
  table.on_ask(ask(20, "w"), {}, answers);
  EXPECT_THAT(sources(answers), ElementsAre(PublicationTable::kWriter));
  EXPECT_TRUE(answers[0].is_shared);
}

TEST(PublicationTable, ManyReadersAreATree) {
  PublicationTable table(7, "w", 2, 0);
  PublicationTable::Answers answers;
  table.on_published(table.reserve(), "one", {}, answers);
  for (std::uint64_t reader = 10; reader < 17; ++reader) table.on_ask(ask(reader, ""), {}, answers);
  EXPECT_THAT(sources(answers), ElementsAre(1, 1));
  answers.clear();
  // One that has it makes room for one at the writer, and serves two itself.
  table.on_ask(ask(10, "", table.current()), {}, answers);
  EXPECT_THAT(sources(answers), ElementsAre(1, 10, 10));
}

TEST(PublicationTable, ANumberIsAboveAllThatReadersTellOf) {
  PublicationTable table(7, "w", 2, 40);
  PublicationTable::Answers answers;
  EXPECT_EQ(table.reserve(), 41U);
  table.on_published(41, "one", {}, answers);
  EXPECT_EQ(table.current().number, 41U);
  table.on_ask(ask(10, "", {3, 57, "other"}), {}, answers);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].version.number, 58U);
  EXPECT_EQ(table.reserve(), 59U);
  // It has the same bytes from before, under another number.
  answers.clear();
  table.on_ask(ask(11, "", {3, 20, "one"}), {}, answers);
  EXPECT_THAT(sources(answers), ElementsAre(PublicationTable::kNobody));
}

TEST(PublicationTable, AReaderThatSaysNothingTakesNoRoomForEver) {
  PublicationTable table(7, "w", 1, 0);
  PublicationTable::Answers answers;
  table.on_published(table.reserve(), "one", {}, answers);
  const PublicationTable::Time begin;
  table.on_ask(ask(10, ""), begin, answers);
  answers.clear();
  table.on_ask(ask(11, ""), begin, answers);
  EXPECT_THAT(answers, IsEmpty());
  EXPECT_EQ(table.next_time(begin), begin + PublicationTable::kMostFetch);
  table.on_time(begin + PublicationTable::kMostFetch, answers);
  EXPECT_THAT(sources(answers), ElementsAre(PublicationTable::kWriter));
}

TEST(SubscriptionState, MemoryThatCannotBeMappedIsNotSaidToBe) {
  SubscriptionState state(10);
  auto step = state.on_found(state.begin().attempt);
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(state.ask("a").pod, "a");
    step = state.on_answer(step.attempt, PublicationTable::Answer{10, {7, 1, "one"}, 11, true});
    EXPECT_EQ(step.what, SubscriptionState::Do::kShare);
    step = state.on_fetch_failed(step.attempt, SubscriptionState::Fault::kFailed);
    EXPECT_EQ(step.what, SubscriptionState::Do::kAsk);
    EXPECT_EQ(state.ask("a").failed, 11U);
  }
  EXPECT_EQ(state.ask("a").pod, "");
}

}  // namespace
}  // namespace sinew::internal
