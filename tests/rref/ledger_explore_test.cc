// Every order of deliveries, program steps and faults, for every small scenario: see
// support/explorer.h.
//
// SINEW_PROVE_LEVEL chooses how far: 0 (the default) takes under a minute without optimisation, 1
// some minutes and 2 most of an hour with optimisation. Level 1 exhausts 3 workers, one reference
// and 4 forks with one drop, one duplicate and one crash together; with what
// ledger_reduction_test.cc shows of references, that is all for 2 references too. Level 2 does
// those in one world all the same. With all three faults, and reduced, that is
//   forks     scenarios       states    transitions
//   1 + 1            74      443,056      1,468,829
//   3               106    2,258,318      6,930,200
//   4               844   81,006,645    258,220,152
//   2 + 2          1352  234,409,855    824,423,416
//   3 + 1    half of its 2176 scenarios (every other one): 181,071,976 states
// and each state takes 8 bytes while its scenario is explored, at most 700,000 of them.

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "sinew/tests/rref/support/explorer.h"

namespace sinew::internal::ledger {
namespace {

struct Bound {
  int level;
  std::vector<int> forks;  // of each reference
  Faults faults;           // drops, duplicates, crashes, passing of time
};

std::string name_of(const Bound& bound) {
  return "level" + std::to_string(bound.level) + "_forks" + absl::StrJoin(bound.forks, "and") +
         "_drop" + std::to_string(bound.faults.drops) + "_dup" +
         std::to_string(bound.faults.duplicates) + "_crash" + std::to_string(bound.faults.crashes) +
         "_time" + std::to_string(bound.faults.advances);
}

std::vector<Bound> bounds() {
  return {
      {0, {1}, {1, 1, 1, 1}},    {0, {2}, {1, 0, 0, 1}},    {0, {2}, {0, 1, 0, 1}},
      {0, {2}, {0, 0, 1, 1}},    {0, {2}, {1, 1, 1, 0}},    {0, {3}, {1, 1, 1, 0}},
      {0, {1, 1}, {1, 1, 1, 0}}, {0, {2, 1}, {1, 0, 0, 0}}, {0, {2, 1}, {0, 1, 0, 0}},
      {0, {2, 1}, {0, 0, 1, 0}}, {1, {3}, {0, 0, 0, 1}},    {1, {2, 1}, {1, 1, 1, 0}},
      {1, {4}, {1, 1, 1, 0}},    {2, {2}, {1, 1, 1, 1}},    {2, {3}, {1, 0, 0, 1}},
      {2, {2, 2}, {1, 1, 1, 0}}, {2, {3, 1}, {1, 1, 1, 0}},
  };
}

class LedgerExplore : public testing::TestWithParam<Bound> {};

TEST_P(LedgerExplore, every_invariant_holds_in_every_state) {
  const char* level = std::getenv("SINEW_PROVE_LEVEL");
  if (GetParam().level > (level == nullptr ? 0 : std::atoi(level))) {
    GTEST_SKIP() << "needs SINEW_PROVE_LEVEL=" << GetParam().level;
  }
  Exploration sum;
  const std::vector<Scenario> scenarios = all_scenarios(GetParam().forks, 3);
  for (const Scenario& scenario : scenarios) {
    const Exploration one = explore(scenario, GetParam().faults);
    ASSERT_EQ(one.violation, "");
    sum.states += one.states;
    sum.transitions += one.transitions;
    sum.endings += one.endings;
  }
  std::cout << scenarios.size() << " scenarios: " << sum.states << " states, " << sum.transitions
            << " transitions, " << sum.endings << " endings\n";
  EXPECT_GT(sum.states, scenarios.size());
  EXPECT_GE(sum.endings, scenarios.size());
}

INSTANTIATE_TEST_SUITE_P(Bounds, LedgerExplore, testing::ValuesIn(bounds()),
                         [](const auto& param) { return name_of(param.param); });

}  // namespace
}  // namespace sinew::internal::ledger
