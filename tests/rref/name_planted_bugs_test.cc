// Proves that the exploration finds bugs of the rules by which named objects are found: each is
// switched on, in a program whose rules are built with SINEW_PLANTED_BUGS.

#include <gtest/gtest.h>

#include <string>

#include "sinew/rref/internal/name_bugs.h"
#include "sinew/tests/rref/name_model.h"

namespace sinew::internal::sim {
namespace {

struct Planted {
  NameBug bug;
  const char* name;
};

constexpr Planted kBugs[] = {
    {NameBug::kSeeksTheLost, "kSeeksTheLost"},
    {NameBug::kLossIsFinal, "kLossIsFinal"},
    {NameBug::kAbsenceIsFinal, "kAbsenceIsFinal"},
    {NameBug::kTrustsHastyDenial, "kTrustsHastyDenial"},
    {NameBug::kVanishingIsFinal, "kVanishingIsFinal"},
    {NameBug::kVanishesForever, "kVanishesForever"},
    {NameBug::kAsksAfterRefusal, "kAsksAfterRefusal"},
    {NameBug::kGivesUpTheSilent, "kGivesUpTheSilent"},
    {NameBug::kIgnoresDeadline, "kIgnoresDeadline"},
    {NameBug::kKeepsOldNames, "kKeepsOldNames"},
};

class PlantedNameBug : public ::testing::TestWithParam<Planted> {
 protected:
  ~PlantedNameBug() override { name_bug = NameBug::kNone; }
};

TEST_P(PlantedNameBug, IsFound) {
  name_bug = GetParam().bug;
  std::string found;
  for (const NameWorld& world : kNameWorlds) {
    found = explore(world, nullptr);
    if (!found.empty()) break;
  }
  EXPECT_NE(found, "");
  RecordProperty("found", found);
}

INSTANTIATE_TEST_SUITE_P(Each, PlantedNameBug, ::testing::ValuesIn(kBugs),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sinew::internal::sim
