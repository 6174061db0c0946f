#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sinew/launch/process_end.h"

namespace sinew::internal {

/// What holds for a job: a group of processes that are started, and end, together.
struct JobRules {
  using Duration = std::chrono::nanoseconds;

  /// At least 1.
  std::size_t processes = 1;
  /// Those with whose end the job is over if all of them exit with 0: the others get `leave_grace`
  /// to end by themselves, then they are told to. Empty: all must end by themselves.
  std::vector<std::size_t> leaders;
  /// How often a job that failed is started again.
  int max_restarts = 0;
  /// From being told to end to being killed.
  Duration grace = std::chrono::seconds(10);
  Duration leave_grace = std::chrono::seconds(10);
  /// Before the first restart; twice as long before each further one.
  Duration first_back_off = std::chrono::seconds(1);
  Duration longest_back_off = std::chrono::minutes(1);
};

/// What becomes of a job: who is started, told to end, killed, and when; what failed first; whether
/// all is started again. Without processes, a clock or a lock of its own: the caller does what
/// next() says, and tells what happens.
///
/// The first process that fails (does not exit with 0, without having been told to end) ends the
/// others: they are told to, and killed after `grace`. When all have ended the job is started again
/// if it may be, unless its leaders had ended well, a process could not be started, or one cannot
/// be killed. A first request to stop tells all to end, and waits for them. A second one kills,
/// unless it is the first one that arrives by another way (is_same_stop()). A process that ends
/// once the job is stopped counts as told to end: by this, or by the sender of the request.
///
/// Copyable, for tests that look at what may follow from each state.
class JobState {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  enum class ProcessState : std::uint8_t { kIdle, kStarting, kRunning, kTold, kKilled, kEnded };
  struct Process {
    ProcessState state = ProcessState::kIdle;
    /// The signal by which it was told to end, or SIGKILL; 0: none.
    int told = 0;
    ProcessEnd end;
  };
  struct Action {
    enum class Kind {
      /// Answer with on_started() or, if it cannot be, on_ended().
      kStart,
      /// Send it `signal`.
      kSignal,
      /// It does not die: forget it.
      kAbandon,
    };
    Kind kind;
    std::size_t process = 0;
    int signal = 0;
  };

  explicit JobState(JobRules rules);

  /// What is to be done now; call it until it has nothing more. Each is said once.
  std::optional<Action> next(TimePoint now);
  /// When to call next() again if nothing happens before; max(): never.
  TimePoint wake() const { return deadline_; }

  void on_started(std::size_t process) { at(process).state = ProcessState::kRunning; }
  void on_ended(std::size_t process, ProcessEnd end, TimePoint now);
  /// A request to stop the job, by `signal`. The second time: at once.
  void on_stop(int signal, TimePoint now);
  /// Whether a request to stop that arrives now is the same as the one before.
  bool is_stopped_by(TimePoint now) const;

  /// All have ended, and none is started again.
  bool is_over() const { return aim_ == Aim::kOver; }
  /// All have ended, and are started again when it is time.
  bool waits_to_restart() const { return aim_ == Aim::kBackOff; }
  /// Counts from 0.
  int attempt() const { return attempt_; }
  /// Which process of this attempt failed first.
  std::optional<std::size_t> first_failure() const { return first_failure_; }
  const Process& process(std::size_t number) const { return processes_[number]; }
  const std::vector<Process>& processes() const { return processes_; }
  /// Of the first request to stop; 0: there was none.
  int stop_signal() const { return stop_signal_; }
  /// The shell's status of what failed first; 128 and the signal's number if the job was stopped
  /// before all had ended well; otherwise 0.
  int exit_status() const;
  const JobRules& rules() const { return rules_; }

  /// Appends what this state is, but for the times.
  void append_key(std::string& key) const;

 private:
  enum class Aim : std::uint8_t {
    kRun,
    /// The leaders have ended well.
    kLeave,
    kEnd,
    kKill,
    kBackOff,
    kOver,
  };

  Process& at(std::size_t number) { return processes_[number]; }
  void on_deadline(TimePoint now);
  void begin_end(int signal, TimePoint now);
  void begin_kill(TimePoint now);
  void settle(TimePoint now);
  std::optional<Action> next_for_aim();
  std::optional<Action> next_of(std::size_t number);
  bool all_ended() const;
  bool leaders_ended_well() const;
  bool may_restart() const;
  JobRules::Duration back_off() const;

  JobRules rules_;
  std::vector<Process> processes_;
  Aim aim_ = Aim::kRun;
  TimePoint deadline_ = TimePoint::max();
  int attempt_ = 0;
  std::optional<std::size_t> first_failure_;
  // By which the processes are told to end.
  int end_signal_ = 0;
  int stop_signal_ = 0;
  TimePoint stopped_at_;
};

}  // namespace sinew::internal
