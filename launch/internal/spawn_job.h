#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sinew/launch/internal/child_process.h"
#include "sinew/launch/internal/output_relay.h"
#include "sinew/launch/internal/place_variables.h"
#include "sinew/launch/internal/port_reservation.h"
#include "sinew/launch/internal/spawn_child.h"
#include "sinew/launch/internal/supervisor.h"
#include "sinew/launch/spawn_options.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// Spawned processes, with the thread that starts and watches them: it lives as long as they do.
/// Thread-safe.
class SpawnJob {
 public:
  /// Starts them, with `task` and the arguments of the program. Throws RpcError, see
  /// start_processes().
  SpawnJob(std::size_t processes, const SpawnOptions& options, FileDescriptor task,
           std::vector<std::string> arguments);
  /// See ProcessContext.
  ~SpawnJob();
  SpawnJob(const SpawnJob&) = delete;
  SpawnJob& operator=(const SpawnJob&) = delete;

  // As those of ProcessContext.
  bool join(std::chrono::milliseconds timeout);
  std::vector<pid_t> pids() const;
  void terminate();

 private:
  ChildProcess::Start start(std::size_t process);
  /// Without output and report.
  ChildCommand command(std::size_t process) const;
  FileDescriptor output(std::size_t process, int stream);
  void run();
  void on_change();
  std::exception_ptr failure() const;

  const SpawnOptions options_;
  const FileDescriptor task_;
  const std::vector<std::string> arguments_;
  const pid_t owner_;
  const int exceptions_before_;
  JobPlace place_;
  std::optional<PortReservation> port_;
  const FileDescriptor nothing_;
  /// Empty: this process has one, which they inherit.
  const std::string job_token_;
  sigset_t blocked_signals_;

  // For thread_ alone.
  std::vector<FileDescriptor> reports_;
  OutputRelay relay_;
  Supervisor supervisor_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<pid_t> pids_ ABSL_GUARDED_BY(mutex_);
  bool all_started_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_terminated_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace sinew::internal
