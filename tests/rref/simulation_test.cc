#include "sinew/tests/rref/support/simulation.h"

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "gtest/gtest.h"

namespace sinew::internal::ledger {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Seeds that take about half a minute of one core at most.
#ifdef __OPTIMIZE__
constexpr std::uint64_t kDefaultSeeds = 5000;
#else
constexpr std::uint64_t kDefaultSeeds = 1000;
#endif

// SINEW_SIM_SEEDS sets how many seeds run, SINEW_SIM_SEED runs that one alone.
TEST(Simulation, every_invariant_holds_for_every_seed) {
  const bool one = std::getenv("SINEW_SIM_SEED") != nullptr;
  const std::uint64_t first = number_from("SINEW_SIM_SEED", 1);
  const std::uint64_t count = one ? 1 : number_from("SINEW_SIM_SEEDS", kDefaultSeeds);
  SimulationReport sum;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const SimulationReport report = simulate(seed);
    ASSERT_EQ(report.violation, "") << "rerun with SINEW_SIM_SEED=" << seed;
    sum.add(report);
  }
  std::cout << count << " seeds: " << sum.events << " events, " << sum.created << " values, "
            << sum.received << " records received, " << sum.uses << " uses, " << sum.forgeries
            << " forgeries, " << sum.crashes << " crashes, " << sum.fences << " leases ended, "
            << sum.left << " graceful leaves\n";
  if (one) return;
  // A simulation in which nothing happens proves nothing.
  EXPECT_GT(sum.received, count);
  EXPECT_GT(sum.uses, count / 4);
  EXPECT_GT(sum.forgeries, count / 4);
  EXPECT_GT(sum.crashes, count / 4);
  EXPECT_GT(sum.fences, count / 4);
  EXPECT_GT(sum.left, count / 100);
}

TEST(Simulation, the_same_seed_gives_the_same_run) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const SimulationReport once = simulate(seed);
    const SimulationReport again = simulate(seed);
    EXPECT_EQ(once.events, again.events) << "seed " << seed;
    EXPECT_EQ(once.received, again.received) << "seed " << seed;
    EXPECT_EQ(once.uses, again.uses) << "seed " << seed;
  }
}

}  // namespace
}  // namespace sinew::internal::ledger
