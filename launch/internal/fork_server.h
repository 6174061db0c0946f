#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sinew/launch/internal/child_process.h"
#include "sinew/launch/internal/fork_channel.h"
#include "sinew/launch/internal/job_process.h"
#include "sinew/launch/internal/place_variables.h"
#include "sinew/rpc/base/internal/file_descriptor.h"

namespace sinew::internal {

/// A process that has loaded this program and forks those of a job: only the first of them takes
/// the time that loading takes. They are its children, and end with it, as it does with the thread
/// that started it. See serve_forks() for what it does.
///
/// For one thread, as a ChildProcess.
class ForkServer {
 public:
  /// `command` as for a process that execs, with the task among its descriptors. Returns once it is
  /// ready. kFailedPrecondition: the program is not one that can be forked when it comes to
  /// init_launch(); kUnavailable: it does not come to it, or the system denies what a server needs;
  /// kDeadlineExceeded: not within a minute.
  static absl::StatusOr<std::unique_ptr<ForkServer>> start(ChildCommand command);
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  struct Request {
    int rank = 0;
    /// Added to the server's.
    Variables variables;
    // Descriptors of this process.
    int output = -1;
    int error_output = -1;
    int report = -1;
  };
  /// The process refers to this server.
  JobProcess::Start fork(const Request& request);
  /// There is nothing more to fork. Before that no end of a process is told.
  void end_forking();
  /// Ends it, and what is left of its processes, and waits for it. Without that it ends with the
  /// thread that started it.
  void end();

 private:
  class ForkedProcess;

  ForkServer(std::unique_ptr<JobProcess> process, FileDescriptor socket, FileDescriptor readable);

  /// kDeadlineExceeded; kUnavailable: it is gone.
  absl::StatusOr<ForkMessage> receive_soon();
  std::optional<ProcessEnd> take_end(pid_t pid);
  void take_messages();

  const std::unique_ptr<JobProcess> process_;
  const ForkChannel channel_;
  // Readable when the channel is, or the server has ended: another process might hold its end.
  const FileDescriptor readable_;
  bool is_gone_ = false;
  std::map<pid_t, ProcessEnd> ends_;
};

}  // namespace sinew::internal
