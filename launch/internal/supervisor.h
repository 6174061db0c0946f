#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "sinew/launch/internal/child_process.h"
#include "sinew/launch/internal/job_state.h"
#include "sinew/launch/internal/output_relay.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// Starts the processes of a job, watches them and does with them what JobState says. Needs no
/// handler of SIGCHLD, and waits for no process but its own.
///
/// For one thread, which must live as long as the processes: they are killed when it ends. stop()
/// is for any thread.
class Supervisor {
 public:
  using TimePoint = JobState::TimePoint;

  struct Job {
    JobRules rules;
    /// Starts a process for the attempt of that number.
    std::function<ChildProcess::Start(std::size_t process, int attempt)> start;
    /// Something has become of the job. Optional.
    std::function<void()> on_change = [] {};
    /// Whether who called stop() knows that all processes have the signal: it is not sent once
    /// more, since they may count. Optional.
    std::function<bool()> stop_has_reached_all = [] { return false; };
  };
  /// What is known of a process beyond its state.
  struct Record {
    /// -1: it has not been started.
    pid_t pid = -1;
    TimePoint started;
    TimePoint ended;
  };

  /// `relay` outlives this. Throws RpcError kResourceExhausted if there are no descriptors left.
  Supervisor(Job job, OutputRelay& relay);

  /// Calls `callback` from run() whenever `descriptor` is readable.
  void watch(int descriptor, std::function<void()> callback);
  /// Returns when the job is over, and what its processes have written is written. For a reader of
  /// that it waits until stop() is called, or for the job's `grace` if it was called before.
  void run();
  /// The first time: ends the job; the second: at once. Within 2 s it is the first. Thread-safe.
  void stop(int signal);
  /// Sends all processes that run a signal.
  void signal_all(int number) const;

  const JobState& state() const { return state_; }
  const Record& record(std::size_t process) const { return records_[process]; }

 private:
  void act();
  void start(std::size_t process);
  void wait(TimePoint deadline);
  std::vector<int> take_stops();
  void write_rest();
  void take_ends();

  const Job job_;
  OutputRelay& relay_;
  JobState state_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
  std::vector<Record> records_;
  std::vector<std::pair<int, std::function<void()>>> watches_;
  // Wakes run().
  FileDescriptor wake_;

  Mutex mutex_;
  std::vector<int> stops_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
