// Every place at which a fault, or two, can strike small worlds: see support/registry_explorer.h.
//
// SINEW_PROVE_LEVEL chooses how far: 0 (the default) takes a minute, 1 an hour.

#include <cstdlib>
#include <iostream>
#include <string>

#include "gtest/gtest.h"
#include "sinew/tests/registry/support/registry_explorer.h"

namespace sinew::internal::registry {
namespace {

class RegistryExplore : public ::testing::TestWithParam<Exploring> {};

TEST_P(RegistryExplore, EveryRuleHoldsInEveryRun) {
  const Explored result = explore(GetParam());
  EXPECT_EQ(result.violation, "");
  EXPECT_GT(result.runs, 100U);
  std::cout << result.steps << " steps without a fault, " << result.runs << " runs, "
            << result.events << " events\n";
}

int prove_level() {
  const char* const text = std::getenv("SINEW_PROVE_LEVEL");
  return text == nullptr ? 0 : std::atoi(text);
}

INSTANTIATE_TEST_SUITE_P(Of, RegistryExplore, ::testing::ValuesIn(explorings(prove_level())),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sinew::internal::registry
