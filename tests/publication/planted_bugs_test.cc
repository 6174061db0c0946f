// Proves that the exploration finds bugs of the rules of publications: each is switched on, in a
// program whose rules are built with SINEW_PLANTED_BUGS.

#include <gtest/gtest.h>

#include <string>

#include "sinew/optim/internal/publication_bugs.h"
#include "sinew/tests/publication/model.h"

namespace sinew::internal::sim {
namespace {

struct Planted {
  PublicationBug bug;
  const char* name;
};

constexpr Planted kBugs[] = {
    {PublicationBug::kSwitchesUnverified, "kSwitchesUnverified"},
    {PublicationBug::kGoesBack, "kGoesBack"},
    {PublicationBug::kChangesForever, "kChangesForever"},
    {PublicationBug::kKeepsDeadWriter, "kKeepsDeadWriter"},
    {PublicationBug::kHidesFailure, "kHidesFailure"},
    {PublicationBug::kTakesLateResults, "kTakesLateResults"},
    {PublicationBug::kSaysWhatItFetches, "kSaysWhatItFetches"},
    {PublicationBug::kIgnoresOthersNumbers, "kIgnoresOthersNumbers"},
    {PublicationBug::kKeepsSlotsOfTheLost, "kKeepsSlotsOfTheLost"},
    {PublicationBug::kWakesNobody, "kWakesNobody"},
    {PublicationBug::kTrustsFailed, "kTrustsFailed"},
    {PublicationBug::kServesStale, "kServesStale"},
    {PublicationBug::kNoFanOut, "kNoFanOut"},
};

class PlantedPublicationBug : public ::testing::TestWithParam<Planted> {
 protected:
  ~PlantedPublicationBug() override { publication_bug = PublicationBug::kNone; }
};

TEST_P(PlantedPublicationBug, IsFound) {
  publication_bug = GetParam().bug;
  std::string found;
  for (const PublicationWorld& world : kPublicationWorlds) {
    found = explore(world, nullptr);
    if (!found.empty()) {
      found = std::string(world.name) + ": " + found;
      break;
    }
  }
  EXPECT_NE(found, "");
  RecordProperty("found", found);
  std::cout << found << std::endl;
}

INSTANTIATE_TEST_SUITE_P(Each, PlantedPublicationBug, ::testing::ValuesIn(kBugs),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sinew::internal::sim
