#pragma once

#include <signal.h>
#include <sys/signalfd.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/launch/internal/child_process.h"
#include "sinew/launch/internal/output_relay.h"
#include "sinew/launch/internal/port_reservation.h"
#include "sinew/launch/internal/supervisor.h"
#include "sinew/launch/run/orphan_guard.h"
#include "sinew/launch/run/run_options.h"

namespace sinew::internal {

/// What sinew-run does once it has read its command line. For a process with one thread, and once
/// in it: signals are blocked, and read.
class Launcher {
 public:
  /// Throws RpcError kResourceExhausted.
  explicit Launcher(RunOptions options);

  /// Runs the job. The exit status.
  int run();

 private:
  Supervisor::Job job();
  ChildProcess::Start start(std::size_t process, int attempt);
  absl::Status begin_attempt(int attempt);
  /// Where the output goes that `stream` (1 or 2) of the process is.
  absl::StatusOr<FileDescriptor> output(std::size_t process, int attempt, int stream);
  absl::StatusOr<FileDescriptor> open_log(std::size_t process, int attempt, int stream) const;
  std::string prefix(std::size_t process) const;
  void on_change();
  void on_signal();
  bool has_reached_all(const signalfd_siginfo& info) const;
  void suspend() const;
  void report_end();
  void say(const std::string& text);

  const RunOptions options_;
  JobPlace place_;
  sigset_t signals_before_;
  FileDescriptor signals_;
  FileDescriptor nothing_;
  // Empty: none is drawn.
  const std::string job_token_;
  OrphanGuard guard_;
  OutputRelay relay_;
  std::optional<PortReservation> port_;
  int begun_attempt_ = -1;
  int reported_failures_ = 0;
  int announced_restarts_ = 0;
  bool stop_has_reached_all_ = false;
  // By process; -1: none that the guard knows.
  std::vector<pid_t> guarded_;
  Supervisor supervisor_;
};

}  // namespace sinew::internal
