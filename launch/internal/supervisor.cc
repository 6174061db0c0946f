#include "sinew/launch/internal/supervisor.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>

#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Between looks at children that have no descriptors.
constexpr auto kLookEvery = milliseconds(20);

/// Rounded up: a loop that wakes too early would turn until it is time.
int poll_timeout(JobState::TimePoint deadline) {
  if (deadline == JobState::TimePoint::max()) return -1;
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count() + 1;
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

}  // namespace

Supervisor::Supervisor(Job job, OutputRelay& relay)
    : job_(std::move(job)),
      relay_(relay),
      state_(job_.rules),
      children_(job_.rules.processes),
      records_(job_.rules.processes),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_.valid()) throw_error(absl::ErrnoToStatus(errno, "cannot watch processes"));
}

void Supervisor::watch(int descriptor, std::function<void()> callback) {
  watches_.emplace_back(descriptor, std::move(callback));
}

void Supervisor::run() {
  while (true) {
    act();
    job_.on_change();
    if (state_.is_over()) break;
    wait(state_.wake());
    for (const int signal : take_stops()) state_.on_stop(signal, Clock::now());
    take_ends();
    relay_.step(Clock::now());
  }
  write_rest();
}

void Supervisor::write_rest() {
  relay_.finish(Clock::now());
  const TimePoint deadline =
      state_.stop_signal() == 0 ? TimePoint::max() : Clock::now() + job_.rules.grace;
  while (relay_.has_output() && Clock::now() < deadline) {
    wait(deadline);
    if (!take_stops().empty() && !state_.is_stopped_by(Clock::now())) return;
    relay_.step(Clock::now());
  }
}

void Supervisor::stop(int signal) {
  const MutexLock lock(mutex_);
  stops_.push_back(signal);
  const std::uint64_t one = 1;
  // Cannot fail but by being full, and then run() wakes anyway.
  [[maybe_unused]] const ssize_t written = ::write(wake_.number(), &one, sizeof one);
}

void Supervisor::signal_all(int number) const {
  for (const auto& child : children_) {
    if (child) child->signal(number);
  }
}

void Supervisor::act() {
  while (const std::optional<JobState::Action> action = state_.next(Clock::now())) {
    std::unique_ptr<ChildProcess>& child = children_[action->process];
    switch (action->kind) {
      case JobState::Action::Kind::kStart:
        start(action->process);
        break;
      case JobState::Action::Kind::kSignal:
        if (action->signal == SIGKILL || !job_.stop_has_reached_all())
          child->signal(action->signal);
        // One that is stopped would not see it.
        if (action->signal != SIGKILL) child->signal(SIGCONT);
        break;
      case JobState::Action::Kind::kAbandon:
        child.reset();
        break;
    }
  }
}

void Supervisor::start(std::size_t process) {
  ChildProcess::Start started = job_.start(process, state_.attempt());
  Record& record = records_[process];
  record = Record();
  record.started = record.ended = Clock::now();
  if (!started.process) {
    state_.on_ended(process, started.failure, record.ended);
    return;
  }
  record.pid = started.process->pid();
  children_[process] = std::move(started.process);
  state_.on_started(process);
}

void Supervisor::wait(TimePoint deadline) {
  deadline = std::min(deadline, relay_.wake());
  std::vector<pollfd> waits = relay_.waits();
  waits.push_back({wake_.number(), POLLIN, 0});
  for (const auto& watch : watches_) waits.push_back({watch.first, POLLIN, 0});
  for (const auto& child : children_) {
    if (!child) continue;
    waits.push_back({child->descriptor(), POLLIN, 0});
    if (waits.back().fd < 0) deadline = std::min(deadline, Clock::now() + kLookEvery);
  }
  if (::poll(waits.data(), waits.size(), poll_timeout(deadline)) <= 0) return;
  for (const auto& [descriptor, callback] : watches_) {
    const auto readable = [number = descriptor](const pollfd& wait) {
      return wait.fd == number && wait.revents != 0;
    };
    if (std::any_of(waits.begin(), waits.end(), readable)) callback();
  }
}

std::vector<int> Supervisor::take_stops() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t size = ::read(wake_.number(), &count, sizeof count);
  const MutexLock lock(mutex_);
  return std::exchange(stops_, {});
}

void Supervisor::take_ends() {
  std::vector<std::pair<std::size_t, ProcessEnd>> ends;
  for (std::size_t process = 0; process < children_.size(); ++process) {
    std::unique_ptr<ChildProcess>& child = children_[process];
    if (!child) continue;
    if (const std::optional<ProcessEnd> end = child->take_end()) {
      child.reset();
      ends.emplace_back(process, *end);
    }
  }
  // Which of them came first is not known. One that crashed is the likelier cause of what became of
  // the others.
  std::stable_partition(ends.begin(), ends.end(), [](const auto& end) {
    return end.second.kind == ProcessEnd::Kind::kSignalled;
  });
  for (const auto& [process, end] : ends) {
    records_[process].ended = Clock::now();
    state_.on_ended(process, end, records_[process].ended);
  }
}

}  // namespace sinew::internal
