#pragma once

#include <signal.h>
#include <sys/types.h>

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
  /// negated, if it cannot begin.
  int announce = -1;
};

/// A process that this one has started. It is killed by the kernel when the thread that started it
/// ends, which must therefore live as long; that thread's process may have other threads, and may
/// be killed. Not thread-safe.
class ChildProcess {
 public:
  /// An end of kind kNotStarted says why not.
  struct Start;
  static Start start(const ChildCommand& command);

  ChildProcess(ChildProcess&&) = default;
  ChildProcess& operator=(ChildProcess&&) = default;

  pid_t pid() const { return pid_; }
  /// Becomes readable when the process has ended.
  int descriptor() const { return pidfd_.number(); }

  /// To the process, or to its own group. Nothing happens if it has ended.
  void signal(int number) const;
  /// How it ended; nullopt if it has not. What is left of its own group is killed then, and its
  /// process id is free: call it until it returns something, once.
  std::optional<ProcessEnd> take_end();

 private:
  ChildProcess(pid_t pid, FileDescriptor pidfd, ChildCommand::Group group)
      : pid_(pid), pidfd_(std::move(pidfd)), group_(group) {}

  pid_t pid_;
  FileDescriptor pidfd_;
  ChildCommand::Group group_;
};

struct ChildProcess::Start {
  std::optional<ChildProcess> child;
  /// If there is none.
  ProcessEnd failure;
};

}  // namespace sinew::internal
