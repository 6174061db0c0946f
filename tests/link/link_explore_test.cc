// Every order of deliveries, program steps and faults, for small worlds of two workers: see
// support/explorer.h.
//
// SINEW_PROVE_LEVEL chooses how far: 0 (the default) takes well under a minute, 1 some minutes.

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>

#include "gtest/gtest.h"
#include "sinew/tests/link/support/scenarios.h"

namespace sinew::internal::link_model {
namespace {

int level() {
  const char* const text = std::getenv("SINEW_PROVE_LEVEL");
  return text == nullptr ? 0 : std::atoi(text);
}

class LinkExplore : public testing::TestWithParam<Scenario> {};

TEST_P(LinkExplore, every_invariant_holds_in_every_state) {
  const Exploration result = explore(GetParam());
  EXPECT_EQ(result.violation, "");
  std::cout << result.states << " states, " << result.transitions << " transitions, "
            << result.endings << " endings, quiet after "
            << std::chrono::duration_cast<std::chrono::milliseconds>(result.longest).count()
            << " ms\n";
  EXPECT_GT(result.states, 3);
  EXPECT_GT(result.endings, 0);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, LinkExplore, testing::ValuesIn(scenarios(level())),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace sinew::internal::link_model
