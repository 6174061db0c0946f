#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "gtest/gtest.h"
#include "sinew/tests/link/support/simulation.h"

namespace sinew::internal::link_model {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// SINEW_SIM_SEEDS sets how many seeds run, SINEW_SIM_SEED runs that one alone.
TEST(LinkSimulation, every_invariant_holds_for_every_seed) {
  const bool one = std::getenv("SINEW_SIM_SEED") != nullptr;
  const std::uint64_t first = number_from("SINEW_SIM_SEED", 1);
  const std::uint64_t count = one ? 1 : number_from("SINEW_SIM_SEEDS", 2000);
  SimulationReport sum;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const SimulationReport report = simulate(seed);
    ASSERT_EQ(report.violation, "") << "rerun with SINEW_SIM_SEED=" << seed;
    sum.add(report);
  }
  std::cout << count << " seeds: " << sum.events << " events, " << sum.calls << " calls, "
            << sum.replies << " replies, " << sum.cancelled << " cancelled, " << sum.lost
            << " lost, " << sum.crashes << " crashes, " << sum.suspensions << " suspensions, "
            << sum.cuts << " cuts, " << sum.links_ended << " links ended\n";
  if (one) return;
  // A simulation in which nothing happens proves nothing.
  EXPECT_GT(sum.replies, count);
  EXPECT_GT(sum.cancelled, count / 2);
  EXPECT_GT(sum.lost, count / 2);
  EXPECT_GT(sum.crashes, count / 4);
  EXPECT_GT(sum.suspensions, count);
  EXPECT_GT(sum.links_ended, count / 4);
}

TEST(LinkSimulation, the_same_seed_gives_the_same_run) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(simulate(seed).events, simulate(seed).events) << "seed " << seed;
  }
}

}  // namespace
}  // namespace sinew::internal::link_model
