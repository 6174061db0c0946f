// Proves that the simulation and the exploration find bugs of the membership: each is switched on,
// in a program whose membership is built with SINEW_PLANTED_BUGS.

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "sinew/rpc/membership/membership_bugs.h"
#include "sinew/tests/membership/support/explorer.h"
#include "sinew/tests/membership/support/simulation.h"

namespace sinew::internal::sim {
namespace {

constexpr std::uint64_t kSeeds = 1000;

struct Planted {
  MembershipBug bug;
  const char* name;
  /// Where it is found.
  Plan plan;
};

constexpr Plan kOpenDeaths{Meeting::kTcp, Size::kOpen, Trouble::kDeaths};
constexpr Plan kOpenCuts{Meeting::kTcp, Size::kOpen, Trouble::kCuts};
constexpr Plan kFixedStops{Meeting::kTcp, Size::kFixed, Trouble::kStops};
constexpr Plan kFixedNoDeaths{Meeting::kTcp, Size::kFixed, Trouble::kNoDeaths};

constexpr Planted kBugs[] = {
    {MembershipBug::kMinorityDecides, "kMinorityDecides", kFixedNoDeaths},
    {MembershipBug::kUnlinkedNotAsked, "kUnlinkedNotAsked", kFixedStops},
    {MembershipBug::kPairStays, "kPairStays", kOpenCuts},
    {MembershipBug::kRefuserStays, "kRefuserStays", kOpenCuts},
    {MembershipBug::kFoundsAtOnce, "kFoundsAtOnce", kOpenDeaths},
    {MembershipBug::kNobodyCallsFounder, "kNobodyCallsFounder", kOpenDeaths},
    {MembershipBug::kStrangersNotMet, "kStrangersNotMet", kOpenCuts},
    {MembershipBug::kFrozenForGood, "kFrozenForGood", kFixedStops},
};

class Active {
 public:
  explicit Active(MembershipBug bug) { membership_bug = bug; }
  ~Active() { membership_bug = MembershipBug::kNone; }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;
};

class PlantedMembershipBugs : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedMembershipBugs, AreFound) {
  const Active active(GetParam().bug);
  std::string found;
  for (std::uint64_t seed = 1; seed <= kSeeds && found.empty(); ++seed) {
    found = simulate(GetParam().plan, seed).violation;
    if (!found.empty()) found = absl::StrCat("seed ", seed, ": ", found);
  }
  EXPECT_NE(found, "") << "in " << kSeeds << " seeds";
  RecordProperty("found", found);
}

/// Those that it takes one fault to find, or none.
constexpr Planted kBugsOfOneFault[] = {
    {MembershipBug::kPairStays, "kPairStays", {}},
    {MembershipBug::kFoundsAtOnce, "kFoundsAtOnce", {}},
    {MembershipBug::kNobodyCallsFounder, "kNobodyCallsFounder", {}},
    {MembershipBug::kStrangersNotMet, "kStrangersNotMet", {}},
    {MembershipBug::kFrozenForGood, "kFrozenForGood", {}},
};

class ExploredMembershipBug : public ::testing::TestWithParam<Planted> {};

TEST_P(ExploredMembershipBug, AreFound) {
  const Active active(GetParam().bug);
  std::string found;
  for (const Scenario& scenario : scenarios(0)) {
    if (scenario.faults > 1 || !found.empty()) continue;
    found = explore(scenario).violation;
    if (!found.empty()) found = absl::StrCat(scenario.name, ": ", found);
  }
  EXPECT_NE(found, "") << "by one fault";
  RecordProperty("found", found);
}

// It takes stops of two workers at certain steps, which a thousand seeds do not draw, and lasts
// until one that was evicted is started again.
TEST(ExploredMembershipBugs, AJoinerWithoutASayIsFound) {
  Scenario scenario;
  scenario.plan = {Meeting::kTcp, Size::kFixed};
  scenario.workers = 3;
  scenario.starts = {nanoseconds(0)};
  scenario.kinds = {Fault::Kind::kStopForLong};
  scenario.faults = 2;
  scenario.starts_evicted = false;
  EXPECT_EQ(explore(scenario).violation, "");
  for (const MembershipBug bug : {MembershipBug::kJoinerHasNoSay, MembershipBug::kJoinerIsDeaf}) {
    const Active active(bug);
    EXPECT_NE(explore(scenario).violation, "") << static_cast<int>(bug);
  }
}

INSTANTIATE_TEST_SUITE_P(Each, ExploredMembershipBug, ::testing::ValuesIn(kBugsOfOneFault),
                         [](const auto& each) { return std::string(each.param.name); });

INSTANTIATE_TEST_SUITE_P(Each, PlantedMembershipBugs, ::testing::ValuesIn(kBugs),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sinew::internal::sim
