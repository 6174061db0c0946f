#include "sinew/launch/internal/job_state.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>
#include <chrono>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sinew/launch/internal/port_reservation.h"
#include "sinew/tests/launch/job_worlds.h"

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;
using Kind = JobState::Action::Kind;
using TimePoint = JobState::TimePoint;

/// Does all that the job says; the signals that it sent, by process and number.
std::vector<std::pair<std::size_t, int>> act(JobState& job, TimePoint now) {
  std::vector<std::pair<std::size_t, int>> signals;
  while (const auto action = job.next(now)) {
    if (action->kind == Kind::kStart) job.on_started(action->process);
    if (action->kind == Kind::kSignal) signals.emplace_back(action->process, action->signal);
  }
  return signals;
}

TEST(JobExploration, EveryOrderOfEventsKeepsTheRules) {
  for (const sim::JobWorld& world : sim::job_worlds()) {
    std::size_t states = 0;
    EXPECT_EQ(sim::explore(world, &states), "") << world.name;
    EXPECT_GT(states, 100u) << world.name;
  }
}

TEST(JobState, KillsAfterTheGraceAndNotBefore) {
  JobRules rules;
  rules.processes = 2;
  rules.grace = 5s;
  JobState job(rules);
  const TimePoint begin;
  act(job, begin);
  job.on_ended(1, ProcessEnd::exited(3), begin + 1s);
  EXPECT_EQ(act(job, begin + 1s), (std::vector<std::pair<std::size_t, int>>{{0, SIGTERM}}));
  EXPECT_EQ(job.wake(), begin + 6s);
  EXPECT_TRUE(act(job, begin + 6s - 1ns).empty());
  EXPECT_EQ(act(job, begin + 6s), (std::vector<std::pair<std::size_t, int>>{{0, SIGKILL}}));
  EXPECT_FALSE(job.is_over());
  job.on_ended(0, ProcessEnd::signalled(SIGKILL), begin + 7s);
  EXPECT_TRUE(job.is_over());
  EXPECT_EQ(job.exit_status(), 3);
}

TEST(JobState, WaitsTwiceAsLongBeforeEachRestartUpToABound) {
  JobRules rules;
  rules.max_restarts = 4;
  rules.first_back_off = 1s;
  rules.longest_back_off = 3s;
  JobState job(rules);
  TimePoint now;
  std::vector<JobRules::Duration> pauses;
  for (int attempt = 0; attempt <= rules.max_restarts; ++attempt) {
    act(job, now);
    EXPECT_EQ(job.attempt(), attempt);
    job.on_ended(0, ProcessEnd::exited(1), now);
    if (job.is_over()) break;
    pauses.push_back(job.wake() - now);
    now = job.wake();
  }
  EXPECT_TRUE(job.is_over());
  EXPECT_EQ(pauses, (std::vector<JobRules::Duration>{1s, 2s, 3s, 3s}));
}

TEST(JobState, PassesOnTheSignalThatStopsIt) {
  JobRules rules;
  rules.processes = 2;
  JobState job(rules);
  act(job, TimePoint());
  job.on_stop(SIGINT, TimePoint());
  EXPECT_EQ(act(job, TimePoint()),
            (std::vector<std::pair<std::size_t, int>>{{0, SIGINT}, {1, SIGINT}}));
  job.on_ended(0, ProcessEnd::exited(0), TimePoint());
  job.on_ended(1, ProcessEnd::exited(0), TimePoint());
  EXPECT_TRUE(job.is_over());
  // All have drained.
  EXPECT_EQ(job.exit_status(), 0);
}

TEST(JobState, AStopThatComesTwiceIsOne) {
  JobRules rules;
  JobState job(rules);
  const TimePoint begin;
  act(job, begin);
  using Signals = std::vector<std::pair<std::size_t, int>>;
  job.on_stop(SIGTERM, begin);
  EXPECT_EQ(act(job, begin), (Signals{{0, SIGTERM}}));
  job.on_stop(SIGINT, begin + 2s - 1ns);
  EXPECT_TRUE(job.is_stopped_by(begin + 2s - 1ns));
  EXPECT_TRUE(act(job, begin + 2s - 1ns).empty());
  EXPECT_FALSE(job.is_stopped_by(begin + 2s));
  job.on_stop(SIGTERM, begin + 2s);
  EXPECT_EQ(act(job, begin + 2s), (Signals{{0, SIGKILL}}));
}

TEST(ProcessEnd, SaysWhatAShellSays) {
  EXPECT_EQ(ProcessEnd::exited(3).shell_status(), 3);
  EXPECT_EQ(ProcessEnd::signalled(SIGSEGV).shell_status(), 139);
  EXPECT_EQ(ProcessEnd::not_started(ENOENT).shell_status(), 127);
  EXPECT_EQ(ProcessEnd::not_started(EACCES).shell_status(), 126);
  EXPECT_EQ(ProcessEnd::signalled(SIGSEGV).text(), "was ended by SIGSEGV (Segmentation fault)");
  EXPECT_EQ(ProcessEnd::not_started(ENOENT).text(),
            "could not be started: No such file or directory");
  EXPECT_EQ(ProcessEnd::not_started(EPERM, "prctl").text(),
            "could not be started: prctl: Operation not permitted; a seccomp profile, or another "
            "rule of this host, denies it");
}

TEST(PortReservation, NobodyElseGetsThePort) {
  // So many that chance would pick one twice.
  std::vector<PortReservation> reservations;
  std::set<int> ports;
  for (int i = 0; i < 600; ++i) {
    absl::StatusOr<PortReservation> made = PortReservation::make();
    ASSERT_TRUE(made.ok()) << made.status();
    ports.insert(made->port());
    reservations.push_back(*std::move(made));
  }
  EXPECT_EQ(ports.size(), reservations.size());
}

}  // namespace
}  // namespace sinew::internal
