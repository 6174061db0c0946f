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
  const char* volatile failed_call;
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
int become(Preparation& to_do) {
  if (to_do.group == ChildCommand::Group::kOwn && ::setpgid(0, 0) != 0) return errno;
  if (to_do.announce >= 0) {
    const pid_t self = ::getpid();
    if (::write(to_do.announce, &self, sizeof self) != sizeof self) return errno;
  }
  // An announced process is known to a process that outlives the parent.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 && to_do.announce < 0) {
    to_do.failed_call = "prctl(PR_SET_PDEATHSIG)";
    return errno;
  }
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
      // If it fails, it is not read any more.
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

ChildProcess::Start ChildProcess::start(const ChildCommand& command) {
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
    result.failure = ProcessEnd::not_started(to_do.error, to_do.failed_call);
    return result;
  }
  FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (pidfd.valid()) ::fcntl(pidfd.number(), F_SETFD, FD_CLOEXEC);
  result.process.reset(new ChildProcess(pid, std::move(pidfd), command.group));
  return result;
}

void ChildProcess::signal(int number) const {
  // By the descriptor no other process is hit, also when other code waits for the process
  // meanwhile.
  const bool is_group = group_ == ChildCommand::Group::kOwn;
  if (!is_group && pidfd_.valid()) {
    if (::syscall(SYS_pidfd_send_signal, pidfd_.number(), number, nullptr, 0) == 0) return;
    if (errno == ESRCH) return;
  }
  // Other code has waited for it, and its number may belong to another process.
  if (look() == Look::kIsGone) return;
  ::kill(is_group ? -pid_ : pid_, number);
}

std::optional<ProcessEnd> ChildProcess::take_end() {
  const Look found = look();
  if (found == Look::kRuns) return std::nullopt;
  if (found == Look::kIsGone) return ProcessEnd{ProcessEnd::Kind::kUnknown, 0};
  const auto end_group = [this] {
    if (group_ == ChildCommand::Group::kOwn) ::kill(-pid_, SIGKILL);
  };
  // As long as the process has not been waited for, the number of its group is no other's.
  if (found == Look::kHasEnded) end_group();
  int status = 0;
  pid_t taken = 0;
  do {
    taken = ::waitpid(pid_, &status, WNOHANG);
  } while (taken < 0 && errno == EINTR);
  if (taken == 0) return std::nullopt;
  if (taken < 0) return ProcessEnd{ProcessEnd::Kind::kUnknown, 0};
  // Nor while a process is left in the group.
  if (found == Look::kNoAnswer) end_group();
  return WIFEXITED(status) ? ProcessEnd::exited(WEXITSTATUS(status))
                           : ProcessEnd::signalled(WTERMSIG(status));
}

/// Without taking its end. An error that says nothing of the process is no answer: the call may be
/// denied, or the kernel too old for it.
ChildProcess::Look ChildProcess::look_at(idtype_t type, int id) {
  siginfo_t info{};
  int result = 0;
  do {
    result = ::waitid(type, static_cast<id_t>(id), &info, WEXITED | WNOHANG | WNOWAIT);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return errno == ECHILD ? Look::kIsGone : Look::kNoAnswer;
  return info.si_pid == 0 ? Look::kRuns : Look::kHasEnded;
}

ChildProcess::Look ChildProcess::look() const {
  constexpr auto kByDescriptor = static_cast<idtype_t>(3);  // P_PIDFD
  const Look found = pidfd_.valid() ? look_at(kByDescriptor, pidfd_.number()) : Look::kNoAnswer;
  return found == Look::kNoAnswer ? look_at(P_PID, pid_) : found;
}

}  // namespace sinew::internal
