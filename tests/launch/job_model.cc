#include "sinew/tests/launch/job_model.h"

#include <signal.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/stop_rule.h"

namespace sinew::internal::sim {
namespace {

const ProcessEnd kWell = ProcessEnd::exited(0);

}  // namespace

JobModel::JobModel(const JobRules& rules, int stops)
    : job_(rules), stops_left_(stops), real_(rules.processes) {}

void JobModel::each_next(const Visit& visit) const {
  const auto step = [&](const std::string& name, const auto& change) {
    JobModel next = *this;
    change(next);
    visit(next, name);
  };
  JobModel acted = *this;
  if (acted.act(CanStart::kYes)) visit(acted, "act");
  JobModel refused = *this;
  if (refused.act(CanStart::kNo)) visit(refused, "act, no start");
  for (std::size_t process = 0; process < real_.size(); ++process) {
    const Real& real = real_[process];
    if (real.life != Life::kAlive) continue;
    if (real.is_killed) {
      step(absl::StrCat(process, " is killed"),
           [&](JobModel& next) { next.end(process, ProcessEnd::signalled(SIGKILL)); });
      continue;
    }
    step(absl::StrCat(process, " ends well"), [&](JobModel& next) { next.end(process, kWell); });
    // A code of its own tells whose failure is reported.
    const int code = 10 + static_cast<int>(process);
    step(absl::StrCat(process, " fails"),
         [&](JobModel& next) { next.end(process, ProcessEnd::exited(code)); });
  }
  if (stops_left_ > 0) step("stop", [](JobModel& next) { next.stop(); });
  if (stops_left_ > 0 && is_same_stop()) {
    step("stop later", [](JobModel& next) {
      next.pass_until(*next.first_stop_ + kOneStop);
      next.stop();
    });
  }
  if (job_.wake() != JobState::TimePoint::max()) step("tick", [](JobModel& n) { n.tick(); });
}

bool JobModel::act(CanStart can_start) {
  const std::optional<JobState::Action> action = job_.next(now_);
  if (!action) return false;
  Real& real = real_[action->process];
  if (job_.attempt() + 1 > attempts_) {
    attempts_ = job_.attempt() + 1;
    failed_first_.reset();
    time_has_passed_ = false;
    std::fill(real_.begin(), real_.end(), Real());
  }
  switch (action->kind) {
    case JobState::Action::Kind::kStart:
      if (real.life == Life::kAlive) wrong_ = "a process is started twice";
      if (failed_first_) wrong_ = "a process is started after a failure";
      if (stops_ > 0) wrong_ = "a process is started though the job was stopped";
      if (can_start == CanStart::kNo) {
        end(action->process, ProcessEnd::not_started(11));
      } else {
        real.life = Life::kAlive;
        job_.on_started(action->process);
      }
      return true;
    case JobState::Action::Kind::kSignal: {
      const bool kills = action->signal == SIGKILL;
      if (real.life != Life::kAlive) wrong_ = "a process that does not run is told to end";
      if (kills ? real.is_killed : real.is_told) wrong_ = "a process is told twice";
      if (!has_to_end()) wrong_ = "a process is told to end without need";
      if (kills && stops_ < 2 && !time_has_passed_) wrong_ = "a process is killed without grace";
      real.is_told = true;
      real.is_killed = real.is_killed || kills;
      break;
    }
    case JobState::Action::Kind::kAbandon:
      if (!real.is_killed) wrong_ = "a process is abandoned that was not killed";
      real.life = Life::kDead;
      real.end = {ProcessEnd::Kind::kUnkillable, 0};
      break;
  }
  return can_start == CanStart::kYes;
}

void JobModel::end(std::size_t process, ProcessEnd how) {
  Real& real = real_[process];
  real.life = Life::kDead;
  real.end = how;
  if (!how.is_well() && !real.is_told && stops_ == 0 && !failed_first_) failed_first_ = process;
  job_.on_ended(process, how, now_);
}

void JobModel::stop() {
  --stops_left_;
  if (!is_same_stop()) ++stops_;
  if (!first_stop_) first_stop_ = now_;
  job_.on_stop(SIGINT, now_);
}

bool JobModel::is_same_stop() const { return first_stop_ && now_ - *first_stop_ < kOneStop; }

void JobModel::tick() { pass_until(job_.wake()); }

void JobModel::pass_until(JobState::TimePoint when) {
  now_ = std::max(now_, when);
  time_has_passed_ = time_has_passed_ || (has_to_end() && job_.wake() <= now_);
}

bool JobModel::leaders_are_done() const {
  const std::vector<std::size_t>& leaders = job_.rules().leaders;
  return !leaders.empty() && std::all_of(leaders.begin(), leaders.end(), [&](std::size_t leader) {
    return real_[leader].life == Life::kDead && real_[leader].end.is_well();
  });
}

bool JobModel::has_to_end() const { return failed_first_ || stops_ > 0 || leaders_are_done(); }

bool JobModel::spares_one() const {
  return std::any_of(real_.begin(), real_.end(),
                     [](const Real& real) { return real.life == Life::kAlive && !real.is_killed; });
}

bool JobModel::has_to_restart() const {
  // What is left of one attempt would be in the way of the next.
  for (const Real& real : real_) {
    if (real.end.kind == ProcessEnd::Kind::kUnkillable) return false;
  }
  return failed_first_ && stops_ == 0 && !leaders_are_done() &&
         real_[*failed_first_].end.kind != ProcessEnd::Kind::kNotStarted &&
         attempts_ <= job_.rules().max_restarts;
}

std::string JobModel::broken() const {
  if (!wrong_.empty()) return wrong_;
  if (job_.attempt() > job_.rules().max_restarts) return "the job is started again too often";
  JobModel rest = *this;
  if (!job_.is_over() || rest.job_.next(now_)) return "";
  return wrong_at_end();
}

std::string JobModel::wrong_at_end() const {
  bool all_well = true;
  for (const Real& real : real_) {
    if (real.life == Life::kAlive) return "a process is left when the job is over";
    all_well = all_well && real.life == Life::kDead && real.end.is_well();
  }
  if (has_to_restart()) return "the job is over and should have been started again";
  int status = 0;
  if (failed_first_) {
    status = real_[*failed_first_].end.shell_status();
  } else if (stops_ > 0 && !all_well) {
    status = 128 + SIGINT;
  }
  if (job_.first_failure() != failed_first_) return "it blames another one";
  if (job_.exit_status() != status) {
    return absl::StrCat("it ends with ", job_.exit_status(), " rather than ", status);
  }
  return "";
}

std::string JobModel::settle() const {
  JobModel model = *this;
  const int attempts = attempts_;
  const bool restarts = has_to_restart();
  // Each turn does something: there are few things to do.
  for (int turn = 0; turn < 100; ++turn) {
    while (model.act(CanStart::kYes)) {
    }
    if (!model.wrong_.empty()) return model.wrong_;
    if (model.attempts_ > attempts) return restarts ? "" : "the job is started again";
    if (model.job_.is_over()) return model.wrong_at_end();
    if (model.stops_ > 1 && model.spares_one()) return "a second request does not kill";
    const auto killed = std::find_if(model.real_.begin(), model.real_.end(), [](const Real& real) {
      return real.life == Life::kAlive && real.is_killed;
    });
    if (killed != model.real_.end()) {
      model.end(static_cast<std::size_t>(killed - model.real_.begin()),
                ProcessEnd::signalled(SIGKILL));
    } else if (model.job_.wake() != JobState::TimePoint::max()) {
      model.tick();
    } else {
      return model.has_to_end() ? "the job waits for nothing" : "";
    }
  }
  return "the job does not come to an end";
}

std::string JobModel::key() const {
  std::string key;
  job_.append_key(key);
  absl::StrAppend(&key, "|", stops_left_, stops_, attempts_, time_has_passed_,
                  job_.wake() <= now_ ? 1 : 0, is_same_stop() ? 1 : 0,
                  failed_first_ ? static_cast<int>(*failed_first_) : -1);
  for (const Real& real : real_) {
    absl::StrAppend(&key, ";", static_cast<int>(real.life), real.is_told, real.is_killed,
                    real.end.shell_status());
  }
  return key;
}

}  // namespace sinew::internal::sim
