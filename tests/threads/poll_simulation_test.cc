// How long to poll: PollPolicy on simulated hosts, against the best of some fixed bounds in
// hindsight and against workers that always sleep.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "sinew/tests/threads/support/host_model.h"

namespace sinew::internal::sim {
namespace {

// Of the simulated time, in microseconds.
constexpr int kDuration = 150'000;
// Twelve of the 360 cases are below 0.95 of always sleeping: where 20 threads compute beside, each
// look away lasts for a tenth of the simulated time; and where four callers share a server on two
// cores, or wake it in 5 us.
constexpr double kOfTheBest = 0.77;
constexpr double kOfAsleep = 0.77;

std::vector<HostWorld> programs() {
  std::vector<HostWorld> all(10);
  all[0].name = "calls without work";
  all[1].name = "a step of 20 us between calls";
  all[1].think = 20;
  all[2].name = "a step of 200 us between calls";
  all[2].think = 200;
  all[3].name = "calls of 100 us";
  all[3].service = 100;
  all[4].name = "calls of 2 ms";
  all[4].service = 2000;
  all[5].name = "four callers of one server";
  all[5].callers = 4;
  all[6].name = "four callers and four servers";
  all[6].callers = 4;
  all[6].shared_server = false;
  all[7].name = "four calls, then 2 ms without one";
  all[7].pause_each = 4;
  all[7].pause = 2000;
  all[8].name = "a thread that computes beside";
  all[8].busy = 1;
  all[9].name = "five callers, 20 threads that compute";
  all[9].callers = 5;
  all[9].busy = 20;
  return all;
}

/// How much better than asleep: what a call takes its callers, and what others could compute. A
/// moment of polling counts as the policy weighs it: an eighth of one of waiting, a server's half.
double gain(const HostWorld& world, const HostWork& work, const HostWork& asleep) {
  const auto cost = [&](const HostWork& each) {
    return (static_cast<double>(kDuration) * world.callers + static_cast<double>(each.polled) / 8 +
            static_cast<double>(each.polled_for_others) / 2) /
           static_cast<double>(each.calls + 1);
  };
  const double calls = cost(asleep) / cost(work);
  if (world.busy == 0) return calls;
  return std::sqrt(calls * static_cast<double>(work.computed + 1) /
                   static_cast<double>(asleep.computed + 1));
}

class Hosts : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(Hosts, AsGoodAsTheBestBoundInHindsight) {
  const auto [wake_up, cores, stolen_percent] = GetParam();
  double all = 0;
  for (HostWorld world : programs()) {
    world.wake_up = wake_up;
    world.cores = cores;
    world.stolen = stolen_percent / 100.0;
    const HostWork asleep = run_host(world, kDuration, 0);
    double best = 1;
    for (const int wake_ups : {1, 2, 4, 8, 16}) {
      best = std::max(best, gain(world, run_host(world, kDuration, wake_ups * wake_up), asleep));
    }
    const double ours = gain(world, run_host(world, kDuration, std::nullopt), asleep);
    EXPECT_GE(ours, kOfTheBest * best) << world.name << ": the best bound brings " << best;
    EXPECT_GE(ours, kOfAsleep) << world.name;
    all += ours / best;
  }
  EXPECT_GE(all / static_cast<double>(programs().size()), 0.95);
}

INSTANTIATE_TEST_SUITE_P(WakeUpCoresStolen, Hosts,
                         ::testing::Combine(::testing::Values(5, 30, 100, 300),
                                            ::testing::Values(1, 2, 16),
                                            ::testing::Values(0, 10, 20)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "us_" +
                                  std::to_string(std::get<1>(test.param)) + "cores_" +
                                  std::to_string(std::get<2>(test.param)) + "percent";
                         });

}  // namespace
}  // namespace sinew::internal::sim
