// Many jobs in virtual time, small ones and large ones, with faults and lies that are drawn.
//
// SINEW_SIMULATION_SEED=n runs that one alone, and tells what happens; SINEW_SIMULATION_SEEDS=n so
// many.

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "gtest/gtest.h"
#include "sinew/tests/registry/support/registry_troubles.h"

namespace sinew::internal::registry {
namespace {

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void simulate_all(const Trouble& trouble, std::uint64_t seeds) {
  if (const std::uint64_t one = number_of("SINEW_SIMULATION_SEED", 0); one != 0) {
    EXPECT_EQ(simulate(trouble, one, true).violation, "");
    return;
  }
  World::Counts sum;
  int faults = 0;
  int failed = 0;
  seeds = number_of("SINEW_SIMULATION_SEEDS", seeds);
  for (std::uint64_t seed = 1; seed <= seeds && failed < 5; ++seed) {
    const Simulated result = simulate(trouble, seed);
    if (!result.violation.empty()) {
      ++failed;
      ADD_FAILURE() << "seed " << seed << ": " << result.violation;
    }
    faults += result.faults;
    sum.events += result.counts.events;
    sum.joins += result.counts.joins;
    sum.evictions += result.counts.evictions;
    sum.returns += result.counts.returns;
    sum.gathers += result.counts.gathers;
    sum.gathers_done += result.counts.gathers_done;
    sum.lies += result.counts.lies;
  }
  std::cout << seeds << " seeds: " << sum.events << " events, " << faults << " faults, "
            << sum.joins << " times a member, " << sum.evictions << " evictions, " << sum.returns
            << " returns, " << sum.gathers_done << " of " << sum.gathers << " gathers complete, "
            << sum.lies << " lies\n";
  EXPECT_GT(faults, 0);
  // Of two hundred somebody nearly always comes or goes.
  EXPECT_GT(sum.gathers_done, sum.gathers / 10);
}

class RegistrySimulation : public ::testing::TestWithParam<Trouble> {};

TEST_P(RegistrySimulation, EndsWithEqualLists) { simulate_all(GetParam(), 100); }

INSTANTIATE_TEST_SUITE_P(Of, RegistrySimulation, ::testing::ValuesIn(troubles()),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(RegistrySimulationOfMany, TwoHundredWorkersComeAndGo) {
  Trouble trouble;
  trouble.setup.workers = 200;
  trouble.setup.is_alone = true;
  trouble.kills = 1;
  trouble.stops = 0.5;
  trouble.losses = 5;
  trouble.leaves = 0.5;
  trouble.lasts = seconds(20);
  simulate_all(trouble, 3);
}

TEST(RegistrySimulationOfMany, AFixedWorldOfTwoHundredWithLiars) {
  Trouble trouble;
  trouble.setup.workers = 200;
  trouble.setup.world_size = 200;
  trouble.setup.is_alone = true;
  trouble.setup.liars = 3;
  trouble.setup.has_guest = true;
  trouble.lies = 40;
  trouble.kills = 0.2;
  trouble.lasts = seconds(20);
  simulate_all(trouble, 1);
}

}  // namespace
}  // namespace sinew::internal::registry
