// Proves that the exploration and the simulation find bugs of the link. This program is built,
// machine included, with SINEW_PLANTED_BUGS.

#include <cstdint>
#include <iostream>
#include <string>

#include "gtest/gtest.h"
#include "sinew/rpc/link/link_bugs.h"
#include "sinew/tests/link/support/scenarios.h"
#include "sinew/tests/link/support/simulation.h"

namespace sinew::internal::link_model {
namespace {

constexpr std::uint64_t kSeeds = 300;

struct Planted {
  LinkBug bug;
  const char* name;
  /// The scenario that shows it; empty: the simulation does.
  const char* scenario;
};

constexpr Planted kBugs[] = {
    {LinkBug::kRepetitionDelivered, "kRepetitionDelivered", "repetitions"},
    {LinkBug::kVoidDelivered, "kVoidDelivered", "a_break"},
    {LinkBug::kGivenUpSentAgain, "kGivenUpSentAgain", "a_break"},
    {LinkBug::kNotSentAgain, "kNotSentAgain", "a_break"},
    {LinkBug::kRoomIgnored, "kRoomIgnored", "rooms_and_a_break"},
    {LinkBug::kRoomNotReturned, "kRoomNotReturned", "rooms_and_a_break"},
    {LinkBug::kOldConnectionHeard, "kOldConnectionHeard", "a_late_packet"},
    {LinkBug::kFenceFromAnswer, "kFenceFromAnswer", "a_slow_and_a_fast_clock"},
    {LinkBug::kDropWithoutMargin, "kDropWithoutMargin", "a_slow_and_a_fast_clock"},
    {LinkBug::kBothKeepTheirOwn, "kBothKeepTheirOwn", "both_open"},
    {LinkBug::kEndedHears, "kEndedHears", ""},
    {LinkBug::kCancelForgotten, "kCancelForgotten", "calls"},
    {LinkBug::kGivenUpEndsAtOnce, "kGivenUpEndsAtOnce", "calls"},
    {LinkBug::kRoomToldOnce, "kRoomToldOnce", "rooms_and_a_break"},
    {LinkBug::kOfferNotHeard, "kOfferNotHeard", "a_lease_over_a_break"},
    {LinkBug::kAcceptedIsHeard, "kAcceptedIsHeard", "a_lease_over_a_break"},
    {LinkBug::kRefusalCounts, "kRefusalCounts", "the_smaller_is_refused_later"},
    {LinkBug::kSilenceBorne, "kSilenceBorne", "a_connection_that_swallows"},
    {LinkBug::kHandledForgotten, "kHandledForgotten", "calls"},
    {LinkBug::kWrittenUnheard, "kWrittenUnheard", "a_crash_at_first_contact"},
    {LinkBug::kTurnForgotten, "kTurnForgotten", "both_wait_for_a_turn"},
    {LinkBug::kTurnTakenLate, "kTurnTakenLate", ""},
    {LinkBug::kAskedWaits, "kAskedWaits", "who_is_asked_to_come_needs_no_turn"},
    {LinkBug::kProofUnused, "kProofUnused", "a_crash_that_is_proved"},
};

class Active {
 public:
  explicit Active(LinkBug bug) { link_bug = bug; }
  ~Active() { link_bug = LinkBug::kNone; }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;
};

std::string explored(const std::string& name) {
  for (const Scenario& scenario : scenarios(0)) {
    if (scenario.name == name) return explore(scenario).violation;
  }
  ADD_FAILURE() << "no scenario is called " << name;
  return "";
}

std::string simulated() {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const SimulationReport report = simulate(seed);
    if (!report.violation.empty()) return "seed " + std::to_string(seed) + ": " + report.violation;
  }
  return "";
}

TEST(LinkBugs, nothing_is_found_where_nothing_is_planted) { EXPECT_EQ(simulated(), ""); }

class LinkBugs : public testing::TestWithParam<Planted> {};

TEST_P(LinkBugs, are_found) {
  const Active active(GetParam().bug);
  const std::string scenario = GetParam().scenario;
  const std::string by_exploration = scenario.empty() ? "" : explored(scenario);
  const std::string by_simulation = simulated();
  std::cout << "exploration: " << by_exploration << "\nsimulation: " << by_simulation << "\n";
  EXPECT_NE(scenario.empty() ? by_simulation : by_exploration, "");
}

INSTANTIATE_TEST_SUITE_P(All, LinkBugs, testing::ValuesIn(kBugs),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace sinew::internal::link_model
