// Proves that the exploration and the simulation find bugs of the registry: each is switched on.

#include <cstdint>
#include <cstring>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "sinew/rpc/membership/registry/registry_bugs.h"
#include "sinew/tests/registry/support/registry_explorer.h"
#include "sinew/tests/registry/support/registry_troubles.h"

namespace sinew::internal::registry {
namespace {

struct Planted {
  RegistryBug bug;
  const char* name;
};

#define SINEW_BUG(name) \
  Planted { RegistryBug::name, #name }
constexpr Planted kBugs[] = {
    SINEW_BUG(kPauseCounts),     SINEW_BUG(kOneWordEvicts),     SINEW_BUG(kNewestListWins),
    SINEW_BUG(kNamedAreLost),    SINEW_BUG(kAdmitsAtOnce),      SINEW_BUG(kAnyBeatRefuses),
    SINEW_BUG(kLossForgotten),   SINEW_BUG(kGatherForgotten),   SINEW_BUG(kGatherNotFailed),
    SINEW_BUG(kNoCatchUp),       SINEW_BUG(kAnybodyIsBelieved), SINEW_BUG(kTakesBack),
    SINEW_BUG(kNeverAway),       SINEW_BUG(kLeaveWaits),        SINEW_BUG(kEpochWraps),
    SINEW_BUG(kWorldIncomplete), SINEW_BUG(kOutIsSilent),       SINEW_BUG(kOneWordStays),
};
#undef SINEW_BUG

class Active {
 public:
  explicit Active(RegistryBug bug) { registry_bug = bug; }
  ~Active() { registry_bug = RegistryBug::kNone; }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;
};

std::string explored() {
  for (const Exploring& each : explorings(0)) {
    // The others take a minute where nothing is found.
    if (each.faults > 1 || each.setup.has_twin || !each.setup.has_proofs) continue;
    const std::string violation = explore(each).violation;
    if (!violation.empty()) return absl::StrCat(each.name, ": ", violation);
  }
  return "";
}

std::string simulated() {
  for (const Trouble& each : troubles()) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      const std::string violation = simulate(each, seed).violation;
      if (!violation.empty()) return absl::StrCat(each.name, ", seed ", seed, ": ", violation);
    }
  }
  return "";
}

class PlantedRegistryBugs : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedRegistryBugs, AreFound) {
  const Active active(GetParam().bug);
  const std::string by_exploration = explored();
  const std::string by_simulation = simulated();
  std::cout << "exploration: " << (by_exploration.empty() ? "nothing" : by_exploration)
            << "\nsimulation: " << (by_simulation.empty() ? "nothing" : by_simulation) << "\n";
  EXPECT_FALSE(by_exploration.empty() && by_simulation.empty());
}

INSTANTIATE_TEST_SUITE_P(Each, PlantedRegistryBugs, ::testing::ValuesIn(kBugs),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sinew::internal::registry
