// Which thread of an executor runs a task: all that can happen to a few.

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "sinew/tests/threads/support/run_model.h"

namespace sinew::internal::sim {
namespace {

struct Named {
  const char* name;
  RunWorld world;
};

class RunExploration : public ::testing::TestWithParam<Named> {};

// Never do more tasks run than may, the rules and the threads agree on who watches, and from each
// state on all tasks are run within a few milliseconds unless all threads are busy for ever,
// whatever the helper has to do before; after that nobody watches.
TEST_P(RunExploration, NoTaskLies) {
  std::size_t states = 0;
  EXPECT_EQ(explore(GetParam().world, &states), "");
  EXPECT_GT(states, 500U);
  RecordProperty("states", static_cast<int>(states));
}

RunWorld world(std::size_t num_threads, std::size_t parked, int tasks, int endless, int waiting) {
  RunWorld world;
  world.num_threads = num_threads;
  world.parked = parked;
  world.short_tasks = tasks;
  world.endless_tasks = endless;
  world.waiting_tasks = waiting;
  return world;
}

RunWorld ending(RunWorld world) {
  world.ends = true;
  return world;
}

INSTANTIATE_TEST_SUITE_P(Worlds, RunExploration,
                         ::testing::Values(Named{"OneThread", world(1, 1, 4, 0, 0)},
                                           Named{"OneThreadNotStarted", world(1, 0, 4, 0, 0)},
                                           Named{"OneThreadThatWaits", world(1, 1, 2, 0, 1)},
                                           Named{"OneOfTwoIsBusyForEver", world(2, 2, 3, 1, 0)},
                                           Named{"OneOfTwoIsBusyTheOtherWaits",
                                                 world(2, 1, 1, 1, 1)},
                                           Named{"ThreeParked", world(2, 3, 2, 1, 0)},
                                           Named{"TheEnd", ending(world(2, 2, 2, 0, 1))}),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sinew::internal::sim
