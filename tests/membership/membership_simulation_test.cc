// Many small jobs in virtual time, in which workers are killed, stopped, cut off and started again:
// whatever happens, in the end there is one job, with everybody in it.

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "sinew/tests/membership/support/simulation.h"

namespace sinew::internal::sim {
namespace {

struct Case {
  const char* name;
  Plan plan;
};

class Simulation : public ::testing::TestWithParam<Case> {};

/// SINEW_SIMULATION_SEED=n runs that one alone, and tells what happens; SINEW_SIMULATION_SEEDS=n so
/// many.
std::uint64_t number(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST_P(Simulation, EndsInOneJob) {
  const std::uint64_t one = number("SINEW_SIMULATION_SEED", 0);
  if (one != 0) {
    EXPECT_EQ(simulate(GetParam().plan, one, true).violation, "");
    return;
  }
  Report sum;
  int failed = 0;
  std::uint64_t all_out = 0;
  const std::uint64_t seeds = number("SINEW_SIMULATION_SEEDS", 300);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const Report report = simulate(GetParam().plan, seed);
    sum.kills += report.kills;
    sum.stops += report.stops;
    sum.cuts += report.cuts;
    sum.leaves += report.leaves;
    sum.starts += report.starts;
    sum.evictions += report.evictions;
    sum.freezes += report.freezes;
    if (report.all_out) ++all_out;
    if (report.violation.empty()) continue;
    if (++failed <= 10) ADD_FAILURE() << "seed " << seed << ": " << report.violation;
  }
  EXPECT_EQ(failed, 0) << "of " << seeds;
  EXPECT_LE(all_out, seeds / 50);
  // It is not for lack of trouble.
  EXPECT_GT(sum.kills + sum.cuts, 0);
  std::cout << sum.starts << " starts, " << sum.kills << " kills, " << sum.leaves << " leaves, "
            << sum.stops << " stops, " << sum.cuts << " cuts, " << sum.evictions << " evictions, "
            << sum.freezes << " freezes\n";
}

INSTANTIATE_TEST_SUITE_P(
    Of, Simulation,
    ::testing::Values(Case{"TcpOpenDeaths", {Meeting::kTcp, Size::kOpen, Trouble::kDeaths}},
                      Case{"TcpOpenStops", {Meeting::kTcp, Size::kOpen, Trouble::kStops}},
                      Case{"TcpOpenCuts", {Meeting::kTcp, Size::kOpen, Trouble::kCuts}},
                      Case{"TcpFixedDeaths", {Meeting::kTcp, Size::kFixed, Trouble::kDeaths}},
                      Case{"TcpFixedStops", {Meeting::kTcp, Size::kFixed, Trouble::kStops}},
                      Case{"TcpFixedCuts", {Meeting::kTcp, Size::kFixed, Trouble::kCuts}},
                      Case{"TcpFixedNoDeaths", {Meeting::kTcp, Size::kFixed, Trouble::kNoDeaths}},
                      Case{"SeedsOpenDeaths", {Meeting::kSeeds, Size::kOpen, Trouble::kDeaths}},
                      Case{"SeedsOpenStops", {Meeting::kSeeds, Size::kOpen, Trouble::kStops}},
                      Case{"SeedsOpenCuts", {Meeting::kSeeds, Size::kOpen, Trouble::kCuts}},
                      Case{"FileOpenDeaths", {Meeting::kFile, Size::kOpen, Trouble::kDeaths}},
                      Case{"FileOpenStops", {Meeting::kFile, Size::kOpen, Trouble::kStops}},
                      Case{"FileOpenCuts", {Meeting::kFile, Size::kOpen, Trouble::kCuts}},
                      Case{"FileFixedDeaths", {Meeting::kFile, Size::kFixed, Trouble::kDeaths}},
                      Case{"FileFixedStops", {Meeting::kFile, Size::kFixed, Trouble::kStops}},
                      Case{"FileFixedCuts", {Meeting::kFile, Size::kFixed, Trouble::kCuts}}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sinew::internal::sim
