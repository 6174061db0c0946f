// Proves that the explorations find bugs of the rules of threads: each is switched on, in a program
// whose rules are built with SINEW_PLANTED_BUGS.

#include <gtest/gtest.h>

#include <string>

#include "sinew/rpc/base/threads/lead_bugs.h"
#include "sinew/rpc/base/threads/run_bugs.h"
#include "sinew/tests/threads/support/lead_model.h"
#include "sinew/tests/threads/support/run_model.h"

namespace sinew::internal::sim {
namespace {

template <class Bug>
struct Planted {
  Bug bug;
  const char* name;
};

constexpr Planted<LeadBug> kLeadBugs[] = {
    {LeadBug::kNobodyWatches, "kNobodyWatches"},
    {LeadBug::kNobodyPromoted, "kNobodyPromoted"},
    {LeadBug::kWatcherTrustsAll, "kWatcherTrustsAll"},
    {LeadBug::kTwoLead, "kTwoLead"},
    {LeadBug::kNobodyReplaces, "kNobodyReplaces"},
};

class PlantedLeadBug : public ::testing::TestWithParam<Planted<LeadBug>> {
 protected:
  ~PlantedLeadBug() override { lead_bug = LeadBug::kNone; }
};

TEST_P(PlantedLeadBug, IsFound) {
  lead_bug = GetParam().bug;
  LeadWorld world;
  world.waiting_tasks = lead_bug == LeadBug::kNobodyReplaces;
  world.closes = !world.waiting_tasks;
  const std::string found = explore(world, nullptr);
  EXPECT_NE(found, "");
  RecordProperty("found", found);
}

INSTANTIATE_TEST_SUITE_P(Each, PlantedLeadBug, ::testing::ValuesIn(kLeadBugs),
                         [](const auto& each) { return std::string(each.param.name); });

constexpr Planted<RunBug> kRunBugs[] = {
    {RunBug::kNobodyWatches, "kNobodyWatches"},
    {RunBug::kNobodyWatchesHelper, "kNobodyWatchesHelper"},
    {RunBug::kHelperIsCountedOn, "kHelperIsCountedOn"},
    {RunBug::kNobodyTakesThePlace, "kNobodyTakesThePlace"},
};

class PlantedRunBug : public ::testing::TestWithParam<Planted<RunBug>> {
 protected:
  ~PlantedRunBug() override { run_bug = RunBug::kNone; }
};

TEST_P(PlantedRunBug, IsFound) {
  run_bug = GetParam().bug;
  std::string found;
  for (const std::size_t num_threads : {1, 2}) {
    RunWorld world;
    world.num_threads = num_threads;
    world.parked = 2;
    world.endless_tasks = static_cast<int>(num_threads) - 1;
    world.waiting_tasks = 1;
    found = explore(world, nullptr);
    if (!found.empty()) break;
  }
  EXPECT_NE(found, "");
  RecordProperty("found", found);
}

INSTANTIATE_TEST_SUITE_P(Each, PlantedRunBug, ::testing::ValuesIn(kRunBugs),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sinew::internal::sim
