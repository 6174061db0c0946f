// Proves that the exploration finds bugs of the rules of polling: each is switched on, in a program
// whose rules are built with SINEW_PLANTED_BUGS.

#include <gtest/gtest.h>

#include <string>

#include "sinew/rpc/base/threads/lead_bugs.h"
#include "sinew/tests/threads/support/lead_model.h"

namespace sinew::internal::sim {
namespace {

struct Planted {
  LeadBug bug;
  const char* name;
};

constexpr Planted kBugs[] = {
    {LeadBug::kNobodyWatches, "kNobodyWatches"},
    {LeadBug::kNobodyPromoted, "kNobodyPromoted"},
    {LeadBug::kWatcherTrustsAll, "kWatcherTrustsAll"},
    {LeadBug::kTwoLead, "kTwoLead"},
};

class PlantedLeadBug : public ::testing::TestWithParam<Planted> {
 protected:
  ~PlantedLeadBug() override { lead_bug = LeadBug::kNone; }
};

TEST_P(PlantedLeadBug, IsFound) {
  LeadWorld world;
  world.closes = true;
  lead_bug = GetParam().bug;
  const std::string found = explore(world, nullptr);
  EXPECT_NE(found, "");
  RecordProperty("found", found);
}

INSTANTIATE_TEST_SUITE_P(Each, PlantedLeadBug, ::testing::ValuesIn(kBugs),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sinew::internal::sim
