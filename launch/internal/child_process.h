#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "sinew/launch/internal/job_process.h"
#include "sinew/rpc/base/internal/file_descriptor.h"

namespace sinew::internal {

/// How a process is started.
struct ChildCommand {
  /// Looked up in PATH if it has no slash.
  std::string program;
  /// The first is the name of the program.
  std::vector<std::string> arguments;
  /// All of its environment: "NAME=value".
  std::vector<std::string> environment;
  /// (descriptor here, descriptor there), the latter each once. Nothing else is inherited but
  /// standard input, output and error; those here may be any.
  std::vector<std::pair<int, int>> descriptors;
  enum class Group {
    /// That of its parent: signals of the terminal reach it.
    kShared,
    /// One of its own, whose number is its process id: a signal reaches what it started, too.
    kOwn,
  };
  Group group = Group::kShared;
  /// The signals that are blocked in it.
  sigset_t blocked_signals = {};
  /// Unless -1: the process id is written there (a pid_t) before the program begins; and once more,
  /// negated, if it cannot begin. Whoever reads that ends the process when this one is gone, should
  /// the kernel not be told to.
  int announce = -1;
};

/// A child of this process. It is killed by the kernel when the thread that started it ends, which
/// must therefore live as long; that thread's process may have other threads, and may be killed.
class ChildProcess : public JobProcess {
 public:
  static Start start(const ChildCommand& command);

  pid_t pid() const override { return pid_; }
  int descriptor() const override { return pidfd_.number(); }
  /// To the process, or to its own group.
  void signal(int number) const override;
  /// What is left of its own group is killed then.
  std::optional<ProcessEnd> take_end() override;

  /// Whether there are pidfds, by which processes that are not this one's children can be watched
  /// and signalled; children need none. kUnavailable, with the call that is denied.
  static absl::Status check_pidfds();

 private:
  enum class Look { kRuns, kHasEnded, kIsGone, kNoAnswer };
  static Look look_at(idtype_t type, int id);
  Look look() const;

  ChildProcess(pid_t pid, FileDescriptor pidfd, ChildCommand::Group group)
      : pid_(pid), pidfd_(std::move(pidfd)), group_(group) {}

  const pid_t pid_;
  // Invalid where the system gives none. The number is the child's as long as nobody has waited for
  // it.
  const FileDescriptor pidfd_;
  const ChildCommand::Group group_;
};

}  // namespace sinew::internal
