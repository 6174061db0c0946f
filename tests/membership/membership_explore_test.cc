// Every place at which one fault, or two, can strike small worlds of two or three workers: see
// support/explorer.h.
//
// SINEW_PROVE_LEVEL chooses how far: 0 (the default) takes half a minute, 1 hours.
// SINEW_PROVE_FAULTS="12:kill a, 30:delay", with a filter of one scenario, tells that run.

#include <cstdlib>
#include <iostream>
#include <string>

#include "gtest/gtest.h"
#include "sinew/tests/membership/support/explorer.h"

namespace sinew::internal::sim {
namespace {

int level() {
  const char* const text = std::getenv("SINEW_PROVE_LEVEL");
  return text == nullptr ? 0 : std::atoi(text);
}

class MembershipExplore : public ::testing::TestWithParam<Scenario> {};

TEST_P(MembershipExplore, EveryRuleHoldsInEveryRun) {
  if (const char* const faults = std::getenv("SINEW_PROVE_FAULTS")) {
    return narrate(GetParam(), faults);
  }
  const Exploration result = explore(GetParam());
  EXPECT_EQ(result.violation, "");
  std::cout << result.runs << " runs, " << result.steps << " steps without a fault\n";
  EXPECT_GT(result.steps, 10U);
  EXPECT_GT(result.runs, 100U);
}

INSTANTIATE_TEST_SUITE_P(Of, MembershipExplore, ::testing::ValuesIn(scenarios(level())),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sinew::internal::sim
