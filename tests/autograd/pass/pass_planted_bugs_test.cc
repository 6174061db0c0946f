// Proves that the exploration finds bugs of the rules of backward passes: each is switched on, in a
// program whose rules are built with SINEW_PLANTED_BUGS.

#include <gtest/gtest.h>

#include <string>

#include "sinew/autograd/internal/pass_bugs.h"
#include "sinew/tests/autograd/pass/pass_model.h"

namespace sinew::internal::sim {
namespace {

struct Planted {
  PassBug bug;
  const char* name;
};

constexpr Planted kBugs[] = {
    {PassBug::kLastStepLeavesEarly, "kLastStepLeavesEarly"},
    {PassBug::kAnswersHalfAStep, "kAnswersHalfAStep"},
    {PassBug::kForgetsWhomItAsked, "kForgetsWhomItAsked"},
    {PassBug::kEndsBeforeOthers, "kEndsBeforeOthers"},
    {PassBug::kFailsUnheard, "kFailsUnheard"},
    {PassBug::kAbortsNobody, "kAbortsNobody"},
    {PassBug::kKeepsFailed, "kKeepsFailed"},
    {PassBug::kForgetsFailures, "kForgetsFailures"},
    {PassBug::kJoinsTheEnded, "kJoinsTheEnded"},
};

class PlantedPassBug : public ::testing::TestWithParam<Planted> {
 protected:
  ~PlantedPassBug() override { pass_bug = PassBug::kNone; }
};

TEST_P(PlantedPassBug, IsFound) {
  pass_bug = GetParam().bug;
  std::string found;
  for (const PassWorld& world : pass_worlds()) {
    found = explore(world, nullptr);
    if (!found.empty()) break;
  }
  EXPECT_NE(found, "");
  RecordProperty("found", found);
}

INSTANTIATE_TEST_SUITE_P(Each, PlantedPassBug, ::testing::ValuesIn(kBugs),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sinew::internal::sim
