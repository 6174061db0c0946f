// Proves that the exploration finds bugs of the rules of jobs: each is switched on, in a program
// whose rules are built with SINEW_PLANTED_BUGS.

#include <gtest/gtest.h>

#include <string>

#include "sinew/launch/internal/job_bugs.h"
#include "sinew/tests/launch/job_worlds.h"

namespace sinew::internal::sim {
namespace {

struct Planted {
  JobBug bug;
  const char* name;
};

constexpr Planted kBugs[] = {
    {JobBug::kOthersGoOn, "kOthersGoOn"},
    {JobBug::kNobodyKills, "kNobodyKills"},
    {JobBug::kBlamesTheTold, "kBlamesTheTold"},
    {JobBug::kBlamesTheLast, "kBlamesTheLast"},
    {JobBug::kStartsAfterFailure, "kStartsAfterFailure"},
    {JobBug::kRestartsForever, "kRestartsForever"},
    {JobBug::kRestartsWhenAsked, "kRestartsWhenAsked"},
    {JobBug::kOneSignalKills, "kOneSignalKills"},
    {JobBug::kOneStopIsTwo, "kOneStopIsTwo"},
    {JobBug::kAllStopsAreOne, "kAllStopsAreOne"},
    {JobBug::kBlamesTheStopped, "kBlamesTheStopped"},
    {JobBug::kLeaderIsNotHeard, "kLeaderIsNotHeard"},
};

class PlantedJobBug : public ::testing::TestWithParam<Planted> {
 protected:
  ~PlantedJobBug() override { job_bug = JobBug::kNone; }
};

TEST_P(PlantedJobBug, IsFound) {
  job_bug = GetParam().bug;
  std::string found;
  for (const JobWorld& world : job_worlds()) {
    found = explore(world, nullptr);
    if (!found.empty()) break;
  }
  EXPECT_NE(found, "");
  RecordProperty("found", found);
}

INSTANTIATE_TEST_SUITE_P(Each, PlantedJobBug, ::testing::ValuesIn(kBugs),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sinew::internal::sim
