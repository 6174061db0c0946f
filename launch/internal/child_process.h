#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sinew/launch/process_end.h"
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
  /// negated, if it cannot begin. The reader of that ends the process when this one is gone, in
  /// case the kernel cannot be asked to.
  int announce = -1;
};

/// A child of this process. It is killed by the kernel when the thread that started it ends, which
/// must therefore live as long; that thread's process may have other threads, and may be killed.
/// Not thread-safe.
class ChildProcess {
 public:
  /// What has become of an attempt to start one.
  struct Start {
    std::unique_ptr<ChildProcess> process;
    /// If there is none.
    ProcessEnd failure;
  };
  static Start start(const ChildCommand& command);

  pid_t pid() const { return pid_; }
  /// Becomes readable when the process has ended. -1: the system gives none; call take_end() from
  /// time to time.
  int descriptor() const { return pidfd_.number(); }
  /// To the process, or to its own group. Nothing happens if it has ended.
  void signal(int number) const;
  /// How it ended; nullopt if it has not. What is left of its own group is killed then. Its process
  /// id is free then: call it until it returns something, once.
  std::optional<ProcessEnd> take_end();

 private:
  enum class Look { kRuns, kHasEnded, kIsGone, kNoAnswer };
  static Look look_at(idtype_t type, int id);
  Look look() const;

  ChildProcess(pid_t pid, FileDescriptor pidfd, ChildCommand::Group group)
      : pid_(pid), pidfd_(std::move(pidfd)), group_(group) {}

  const pid_t pid_;
  // Invalid where the system gives none. The number is the child's as long as no code has waited
  // for it.
  const FileDescriptor pidfd_;
  const ChildCommand::Group group_;
};

}  // namespace sinew::internal
