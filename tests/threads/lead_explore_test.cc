// Who polls: all that can happen to the threads of a pool and two that wait.

#include <gtest/gtest.h>

#include <cstddef>

#include "sinew/rpc/base/threads/lead_rules.h"
#include "sinew/tests/threads/support/lead_model.h"

namespace sinew::internal::sim {
namespace {

class LeadExploration : public ::testing::TestWithParam<LeadWorld> {};

// Never do two threads poll, the rules and the threads agree on who does, and from each state on
// all that has come is handled within a few milliseconds, whatever a task does; after that one
// thread looks for events, and none watches.
TEST_P(LeadExploration, NothingLiesAndNobodyIsTwo) {
  std::size_t states = 0;
  EXPECT_EQ(explore(GetParam(), &states), "");
  EXPECT_GT(states, 1000U);
  RecordProperty("states", static_cast<int>(states));
}

LeadWorld world(int waits, int tasks, int ticks, bool closes) {
  LeadWorld world;
  world.waits = waits;
  world.tasks = tasks;
  world.ticks = ticks;
  world.closes = closes;
  return world;
}

INSTANTIATE_TEST_SUITE_P(Worlds, LeadExploration,
                         ::testing::Values(world(2, 0, 4, false), world(1, 1, 3, false),
                                           world(0, 3, 4, false), world(1, 1, 1, true)));

LeadWorld with_waiting_tasks(LeadWorld world, bool has_no_room = false) {
  world.waiting_tasks = true;
  world.has_no_room = has_no_room;
  return world;
}

INSTANTIATE_TEST_SUITE_P(WaitingTasks, LeadExploration,
                         ::testing::Values(with_waiting_tasks(world(0, 2, 3, false)),
                                           with_waiting_tasks(world(1, 1, 1, false)),
                                           with_waiting_tasks(world(0, 2, 1, true)),
                                           with_waiting_tasks(world(0, 2, 2, false), true)));

// Two threads would only share short tasks; one whose task waits is no longer in the way.
TEST(LeadRules, OneThreadOfThePoolIsInATaskThatDoesNotWait) {
  LeadRules rules(std::chrono::microseconds(30));
  EXPECT_EQ(rules.add_thread(), 0);
  EXPECT_EQ(rules.add_thread(), 1);
  EXPECT_EQ(rules.park(0), LeadRules::Parked::kLeads);
  EXPECT_EQ(rules.park(1), LeadRules::Parked::kSleeps);
  EXPECT_TRUE(rules.may_help());
  EXPECT_EQ(rules.lay_down_for_tasks({}, true), LeadRules::Wake::kOneParked);
  EXPECT_EQ(rules.on_woken(1), LeadRules::Parked::kWatches);

  EXPECT_TRUE(rules.begin_task_wait());
  EXPECT_EQ(rules.add_thread(), 2);
  EXPECT_EQ(rules.park(2), LeadRules::Parked::kSleeps);
  EXPECT_EQ(rules.on_interval_over(1), LeadRules::Parked::kLeads);
  EXPECT_TRUE(rules.may_help());
  rules.end_task_wait();
  EXPECT_FALSE(rules.may_help());
  EXPECT_FALSE(rules.begin_task_wait()) << "there are enough";
  EXPECT_TRUE(rules.may_help());
}

TEST(LeadRules, ThePoolGetsEightThreadsAtMost) {
  LeadRules rules(std::chrono::microseconds(30));
  for (int i = 0; i < 2; ++i) rules.add_thread();
  int threads = 2;
  for (int waits = 0; waits < 20; ++waits) {
    if (!rules.begin_task_wait()) continue;
    rules.add_thread();
    ++threads;
  }
  EXPECT_EQ(threads, 8);
}

}  // namespace
}  // namespace sinew::internal::sim
