// Backward passes, in every order of events.

#include <gtest/gtest.h>

#include <string>

#include "sinew/tests/autograd/pass/pass_model.h"

namespace sinew::internal::sim {
namespace {

TEST(PassExploration, EveryOrderOfEventsKeepsTheRules) {
  for (const PassWorld& world : pass_worlds()) {
    std::size_t states = 0;
    EXPECT_EQ(explore(world, &states), "") << world.name;
    EXPECT_GT(states, 100u) << world.name;
    RecordProperty(world.name, static_cast<int>(states));
  }
}

}  // namespace
}  // namespace sinew::internal::sim
