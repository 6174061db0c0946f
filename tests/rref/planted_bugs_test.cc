// Proves that the exploration and the simulation find protocol bugs. Does so only in a program that
// is built, ledger included, with SINEW_PLANTED_BUGS; elsewhere the bugs do not exist and the test
// is skipped.

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/rref/internal/ledger_bugs.h"
#include "sinew/tests/rref/support/explorer.h"
#include "sinew/tests/rref/support/simulation.h"

#ifdef SINEW_PLANTED_BUGS

namespace sinew::internal::ledger {
namespace {

struct Planted {
  PlantedBug bug;
  const char* name;
};

constexpr Planted kBugs[] = {
    {PlantedBug::kDeleteNotTombstoned, "kDeleteNotTombstoned"},
    {PlantedBug::kCreateAfterDelete, "kCreateAfterDelete"},
    {PlantedBug::kPendingChildNotKept, "kPendingChildNotKept"},
    {PlantedBug::kChildDoneEarly, "kChildDoneEarly"},
    {PlantedBug::kClaimIgnored, "kClaimIgnored"},
    {PlantedBug::kParentCheckSkipped, "kParentCheckSkipped"},
    {PlantedBug::kHolderCheckSkipped, "kHolderCheckSkipped"},
    {PlantedBug::kLossKeepsForks, "kLossKeepsForks"},
    {PlantedBug::kLostWorkerHeard, "kLostWorkerHeard"},
    {PlantedBug::kDuplicateDeleteCounted, "kDuplicateDeleteCounted"},
    {PlantedBug::kDeleteBeforeConfirmation, "kDeleteBeforeConfirmation"},
    {PlantedBug::kRefusalNotSent, "kRefusalNotSent"},
    {PlantedBug::kDestroyedTwice, "kDestroyedTwice"},
};

class Active {
 public:
  explicit Active(PlantedBug bug) { planted_bug = bug; }
  ~Active() { planted_bug = PlantedBug::kNone; }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;
};

/// The first violation that the exploration of small scenarios finds, or nothing.
std::string explored() {
  const Faults faults[] = {{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}};
  for (const std::vector<int>& trees : {std::vector<int>{1}, std::vector<int>{2}}) {
    for (const Scenario& scenario : all_scenarios(trees, 3)) {
      for (const Faults& each : faults) {
        const Exploration result = explore(scenario, each);
        if (!result.violation.empty()) return result.violation;
      }
    }
  }
  return "";
}

std::string simulated(std::uint64_t seeds) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const SimulationReport report = simulate(seed);
    if (!report.violation.empty()) return "seed " + std::to_string(seed) + ": " + report.violation;
  }
  return "";
}

TEST(PlantedBugs, nothing_is_found_where_nothing_is_planted) {
  ASSERT_EQ(planted_bug, PlantedBug::kNone);
  EXPECT_EQ(explored(), "");
  EXPECT_EQ(simulated(300), "");
}

class PlantedBugs : public testing::TestWithParam<Planted> {};

TEST_P(PlantedBugs, are_found) {
  const Active active(GetParam().bug);
  const std::string by_exploration = explored();
  const std::string by_simulation = simulated(300);
  std::cout << "exploration: " << (by_exploration.empty() ? "nothing" : by_exploration)
            << "\nsimulation: " << (by_simulation.empty() ? "nothing" : by_simulation) << "\n";
  EXPECT_FALSE(by_exploration.empty() && by_simulation.empty());
}

/// How many of the scenarios in the bound break an invariant.
std::size_t broken(const std::vector<int>& trees, const Faults& faults) {
  std::size_t found = 0;
  for (const Scenario& scenario : all_scenarios(trees, 3)) {
    const bool by_some = !explore(scenario, faults, Reduction::kFull).violation.empty();
    const bool by_all = !explore(scenario, faults, Reduction::kNone).violation.empty();
    EXPECT_EQ(by_some, by_all) << to_text(scenario) << " with " << faults.drops << " drops, "
                               << faults.duplicates << " duplicates, " << faults.crashes
                               << " crashes";
    found += by_some ? 1 : 0;
  }
  return found;
}

TEST_P(PlantedBugs, are_found_with_reduction_where_they_are_found_without) {
  const Active active(GetParam().bug);
  const Faults single[] = {{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
  std::size_t found = 0;
  for (const std::vector<int>& trees : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    for (const Faults& faults : single) found += broken(trees, faults);
  }
  for (const std::vector<int>& trees : {std::vector<int>{1}, std::vector<int>{2}}) {
    found += broken(trees, Faults{1, 1, 1, 0});
  }
  std::cout << found << " scenarios break an invariant\n";
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBugs, testing::ValuesIn(kBugs),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace sinew::internal::ledger

#else

TEST(PlantedBugs, exist_in_the_planted_build_only) {
  GTEST_SKIP() << "built without SINEW_PLANTED_BUGS";
}

#endif
