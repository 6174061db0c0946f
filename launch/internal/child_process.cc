#include "sinew/launch/internal/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

// The flag of close_range(2), which older headers lack.
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

namespace sinew::internal {
namespace {

constexpr int kFirstDescriptor = STDERR_FILENO + 1;

/// What the new process needs between vfork() and execve(), where nothing may be allocated: it has
/// this process's memory, whose locks any thread may hold.
struct Preparation {
  std::vector<const char*> paths;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  // Copies, at numbers that none of the numbers there can overwrite.
  std::vector<std::pair<int, int>> descriptors;
  ChildCommand::Group group;
  int announce;
  pid_t parent;
  sigset_t blocked_signals;
  int descriptor_limit;
  // Written by the child, read here when it has become the program or is gone.
  volatile int error;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> candidates(const std::string& program) {
  if (program.find('/') != std::string::npos || program.empty()) return {program};
  const char* path = std::getenv("PATH");
  std::vector<std::string> result;
  for (absl::string_view folder : absl::StrSplit(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
    result.push_back(absl::StrCat(folder.empty() ? "." : folder, "/", program));
  }
  return result;
}

/// When the program begins.
void close_others_on_exec(const Preparation& to_do) {
  if (::syscall(SYS_close_range, kFirstDescriptor, ~0U, CLOSE_RANGE_CLOEXEC) != 0) {
    for (int number = kFirstDescriptor; number < to_do.descriptor_limit; ++number) {
      ::fcntl(number, F_SETFD, FD_CLOEXEC);
    }
  }
  for (const auto& [here, there] : to_do.descriptors) ::fcntl(there, F_SETFD, 0);
}

void reset_signals(const Preparation& to_do) {
  // A handler of this process would run in its memory as soon as signals are let in. What is
  // ignored stays so (nohup), but for SIGPIPE, which libraries ignore for themselves; and in a
  // group of its own, which no terminal signals, for all that is sent on purpose.
  const bool is_shared = to_do.group == ChildCommand::Group::kShared;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_DFL) continue;
    const bool stays = number == SIGHUP || (is_shared && number != SIGPIPE);
    if (action.sa_handler == SIG_IGN && stays) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    ::sigaction(number, &action, nullptr);
  }
  ::sigprocmask(SIG_SETMASK, &to_do.blocked_signals, nullptr);
}

/// The errno that says why nothing became of it.
int become(const Preparation& to_do) {
  if (to_do.group == ChildCommand::Group::kOwn && ::setpgid(0, 0) != 0) return errno;
  if (to_do.announce >= 0) {
    const pid_t self = ::getpid();
    if (::write(to_do.announce, &self, sizeof self) != sizeof self) return errno;
  }
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  // The parent may have gone before the kernel was told what to do then.
  if (::getppid() != to_do.parent) return ESRCH;
  for (const auto& [here, there] : to_do.descriptors) {
    if (::dup2(here, there) < 0) return errno;
  }
  close_others_on_exec(to_do);
  reset_signals(to_do);
  int error = ENOENT;
  for (const char* path : to_do.paths) {
    ::execve(path, to_do.arguments.data(), to_do.environment.data());
    // As execvp(): a program that is there but cannot be run is worth more than a missing one.
    if (errno != ENOENT && errno != ENOTDIR) error = errno;
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) break;
  }
  return error;
}

/// In a function of its own, with nothing to destroy: the child returns on the parent's stack.
pid_t start_copy(Preparation& to_do) {
  // fork() would copy the page tables of a large process and run what libraries have registered
  // for it.
  const pid_t pid = ::vfork();
  if (pid == 0) {
    to_do.error = become(to_do);
    if (to_do.announce >= 0) {
      const pid_t gone = -::getpid();
      // Nobody reads it any more, if it fails.
      [[maybe_unused]] const ssize_t written = ::write(to_do.announce, &gone, sizeof gone);
    }
    ::_exit(127);
  }
  return pid;
}

int descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

}  // namespace

JobProcess::Start ChildProcess::start(const ChildCommand& command) {
  Start result;
  const std::vector<std::string> paths = candidates(command.program);
  Preparation to_do{};
  for (const std::string& path : paths) to_do.paths.push_back(path.c_str());
  to_do.arguments = pointers(command.arguments);
  to_do.environment = pointers(command.environment);
  to_do.group = command.group;
  to_do.announce = command.announce;
  to_do.blocked_signals = command.blocked_signals;
  to_do.parent = ::getpid();
  to_do.descriptor_limit = descriptor_limit();

  int above = kFirstDescriptor;
  for (const auto& [here, there] : command.descriptors) above = std::max(above, there + 1);
  std::vector<FileDescriptor> copies;
  for (const auto& [here, there] : command.descriptors) {
    copies.emplace_back(::fcntl(here, F_DUPFD_CLOEXEC, above));
    if (!copies.back().valid()) {
      result.failure = ProcessEnd::not_started(errno);
      return result;
    }
    to_do.descriptors.emplace_back(copies.back().number(), there);
  }

  // No handler may run in the child before they are reset.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = start_copy(to_do);
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    result.failure = ProcessEnd::not_started(fork_error);
    return result;
  }
  if (to_do.error != 0) {
    ::waitpid(pid, nullptr, 0);
    result.failure = ProcessEnd::not_started(to_do.error);
    return result;
  }
  FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) {
    result.failure = ProcessEnd::not_started(errno);
    ::kill(command.group == ChildCommand::Group::kOwn ? -pid : pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return result;
  }
  ::fcntl(pidfd.number(), F_SETFD, FD_CLOEXEC);
  result.process.reset(new ChildProcess(pid, std::move(pidfd), command.group));
  return result;
}

void ChildProcess::signal(int number) const {
  // Through the descriptor: somebody else may have waited for the process, and its id be another's.
  const bool is_alive = ::syscall(SYS_pidfd_send_signal, pidfd_.number(), 0, nullptr, 0) == 0;
  if (!is_alive) return;
  if (group_ == ChildCommand::Group::kOwn) {
    ::kill(-pid_, number);
  } else {
    ::syscall(SYS_pidfd_send_signal, pidfd_.number(), number, nullptr, 0);
  }
}

std::optional<ProcessEnd> ChildProcess::take_end() {
  siginfo_t info{};
  const auto id = static_cast<id_t>(pidfd_.number());
  constexpr auto kByDescriptor = static_cast<idtype_t>(3);  // P_PIDFD
  int result = 0;
  do {
    result = ::waitid(kByDescriptor, id, &info, WEXITED | WNOHANG | WNOWAIT);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return ProcessEnd{ProcessEnd::Kind::kUnknown, 0};
  if (info.si_pid == 0) return std::nullopt;
  // As long as the process has not been waited for, the number of its group is no other's.
  if (group_ == ChildCommand::Group::kOwn) ::kill(-pid_, SIGKILL);
  do {
    result = ::waitid(kByDescriptor, id, &info, WEXITED | WNOHANG);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return ProcessEnd{ProcessEnd::Kind::kUnknown, 0};
  return info.si_code == CLD_EXITED ? ProcessEnd::exited(info.si_status)
                                    : ProcessEnd::signalled(info.si_status);
}

}  // namespace sinew::internal
