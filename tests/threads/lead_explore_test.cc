// Who polls: all that can happen to the threads of a pool and two that wait.

#include <gtest/gtest.h>

#include <cstddef>

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

}  // namespace
}  // namespace sinew::internal::sim
