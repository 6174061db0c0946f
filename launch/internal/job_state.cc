#include "sinew/launch/internal/job_state.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/launch/internal/job_bugs.h"
#include "sinew/rpc/base/internal/stop_rule.h"

namespace sinew::internal {
namespace {

// A process that is killed is gone at once, unless it hangs in the kernel: on a dead file server,
// say.
constexpr JobRules::Duration kKillPatience = std::chrono::seconds(30);

bool is_alive(JobState::ProcessState state) {
  return state != JobState::ProcessState::kIdle && state != JobState::ProcessState::kEnded;
}

}  // namespace

JobState::JobState(JobRules rules) : rules_(std::move(rules)), processes_(rules_.processes) {}

std::optional<JobState::Action> JobState::next(TimePoint now) {
  // First, whatever time it is: who was suspended has not killed anybody meanwhile.
  if (std::optional<Action> action = next_for_aim()) return action;
  if (now < deadline_) return std::nullopt;
  on_deadline(now);
  return next_for_aim();
}

std::optional<JobState::Action> JobState::next_for_aim() {
  for (std::size_t number = 0; number < processes_.size(); ++number) {
    if (std::optional<Action> action = next_of(number)) return action;
  }
  return std::nullopt;
}

std::optional<JobState::Action> JobState::next_of(std::size_t number) {
  Process& process = at(number);
  switch (aim_) {
    case Aim::kRun:
      if (process.state != ProcessState::kIdle) break;
      process.state = ProcessState::kStarting;
      return Action{Action::Kind::kStart, number, 0};
    case Aim::kEnd:
      if (SINEW_JOB_BUG(kStartsAfterFailure) && process.state == ProcessState::kIdle) {
        process.state = ProcessState::kStarting;
        return Action{Action::Kind::kStart, number, 0};
      }
      if (process.state != ProcessState::kRunning) break;
      process.state = ProcessState::kTold;
      process.told = end_signal_;
      return Action{Action::Kind::kSignal, number, end_signal_};
    case Aim::kKill:
      if (process.state != ProcessState::kRunning && process.state != ProcessState::kTold) break;
      process.state = ProcessState::kKilled;
      process.told = SIGKILL;
      return Action{Action::Kind::kSignal, number, SIGKILL};
    case Aim::kOver:
      if (process.state != ProcessState::kKilled) break;
      process.state = ProcessState::kEnded;
      process.end = {ProcessEnd::Kind::kUnkillable, 0};
      return Action{Action::Kind::kAbandon, number, 0};
    case Aim::kLeave:
    case Aim::kBackOff:
      break;
  }
  return std::nullopt;
}

void JobState::on_deadline(TimePoint now) {
  deadline_ = TimePoint::max();
  switch (aim_) {
    case Aim::kLeave:
      begin_end(SIGTERM, now);
      break;
    case Aim::kEnd:
      if (!SINEW_JOB_BUG(kNobodyKills)) begin_kill(now);
      break;
    case Aim::kKill:
      aim_ = Aim::kOver;
      break;
    case Aim::kBackOff:
      ++attempt_;
      processes_.assign(rules_.processes, Process());
      first_failure_.reset();
      aim_ = Aim::kRun;
      break;
    case Aim::kRun:
    case Aim::kOver:
      break;
  }
}

void JobState::on_ended(std::size_t number, ProcessEnd end, TimePoint now) {
  Process& process = at(number);
  const bool is_stopped = stop_signal_ != 0 && !SINEW_JOB_BUG(kBlamesTheStopped);
  const bool was_told = (process.told != 0 && !SINEW_JOB_BUG(kBlamesTheTold)) || is_stopped;
  process.state = ProcessState::kEnded;
  process.end = end;
  if (!end.is_well() && !was_told) {
    if (!first_failure_ || SINEW_JOB_BUG(kBlamesTheLast)) first_failure_ = number;
    if (!SINEW_JOB_BUG(kOthersGoOn)) begin_end(SIGTERM, now);
  }
  settle(now);
}

void JobState::on_stop(int signal, TimePoint now) {
  if (is_stopped_by(now) && !SINEW_JOB_BUG(kOneStopIsTwo)) return;
  const bool is_second = stop_signal_ != 0;
  if (is_second && SINEW_JOB_BUG(kAllStopsAreOne)) return;
  if (!is_second) {
    stop_signal_ = signal;
    stopped_at_ = now;
  }
  if (is_second || SINEW_JOB_BUG(kOneSignalKills)) {
    begin_kill(now);
  } else {
    begin_end(signal, now);
  }
  settle(now);
}

bool JobState::is_stopped_by(TimePoint now) const {
  return stop_signal_ != 0 && is_same_stop(stopped_at_, now);
}

void JobState::begin_end(int signal, TimePoint now) {
  if (aim_ != Aim::kRun && aim_ != Aim::kLeave) return;
  aim_ = Aim::kEnd;
  end_signal_ = signal;
  deadline_ = now + rules_.grace;
}

void JobState::begin_kill(TimePoint now) {
  if (aim_ == Aim::kKill || aim_ == Aim::kBackOff || aim_ == Aim::kOver) return;
  aim_ = Aim::kKill;
  deadline_ = now + kKillPatience;
}

void JobState::settle(TimePoint now) {
  if (aim_ == Aim::kOver) return;
  if (aim_ == Aim::kBackOff) {
    if (stop_signal_ == 0 || SINEW_JOB_BUG(kRestartsWhenAsked)) return;
    aim_ = Aim::kOver;
    deadline_ = TimePoint::max();
    return;
  }
  if (!all_ended()) {
    if (aim_ == Aim::kRun && leaders_ended_well() && !SINEW_JOB_BUG(kLeaderIsNotHeard)) {
      aim_ = Aim::kLeave;
      deadline_ = now + rules_.leave_grace;
    }
    return;
  }
  aim_ = may_restart() ? Aim::kBackOff : Aim::kOver;
  deadline_ = aim_ == Aim::kBackOff ? now + back_off() : TimePoint::max();
}

bool JobState::all_ended() const {
  return std::all_of(processes_.begin(), processes_.end(), [&](const Process& process) {
    // Those that were never started will not be when the job is to end.
    return !is_alive(process.state) && (process.state != ProcessState::kIdle || aim_ != Aim::kRun);
  });
}

bool JobState::leaders_ended_well() const {
  return !rules_.leaders.empty() &&
         std::all_of(rules_.leaders.begin(), rules_.leaders.end(), [&](std::size_t leader) {
           const Process& process = processes_[leader];
           return process.state == ProcessState::kEnded && process.end.is_well();
         });
}

bool JobState::may_restart() const {
  if (!first_failure_ || leaders_ended_well()) return false;
  // A program that is not there will not be there the next time.
  if (processes_[*first_failure_].end.kind == ProcessEnd::Kind::kNotStarted) return false;
  if (stop_signal_ != 0 && !SINEW_JOB_BUG(kRestartsWhenAsked)) return false;
  return attempt_ < rules_.max_restarts || SINEW_JOB_BUG(kRestartsForever);
}

JobRules::Duration JobState::back_off() const {
  JobRules::Duration pause = rules_.first_back_off;
  for (int past = 0; past < attempt_ && pause < rules_.longest_back_off; ++past) pause *= 2;
  return std::min(pause, rules_.longest_back_off);
}

int JobState::exit_status() const {
  if (first_failure_) return processes_[*first_failure_].end.shell_status();
  const bool all_well =
      std::all_of(processes_.begin(), processes_.end(), [](const Process& process) {
        return process.state == ProcessState::kEnded && process.end.is_well();
      });
  return stop_signal_ == 0 || all_well ? 0 : 128 + stop_signal_;
}

void JobState::append_key(std::string& key) const {
  absl::StrAppend(&key, static_cast<int>(aim_), ",", attempt_, ",", stop_signal_, ",", end_signal_,
                  ",", deadline_ == TimePoint::max() ? 0 : 1, ",",
                  first_failure_ ? static_cast<int>(*first_failure_) : -1);
  for (const Process& process : processes_) {
    absl::StrAppend(&key, ";", static_cast<int>(process.state), ",", process.told, ",",
                    process.state == ProcessState::kEnded ? process.end.shell_status() : 0);
  }
}

}  // namespace sinew::internal
