#include "sinew/launch/internal/fork_service.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sinew/launch/internal/fork_channel.h"
#include "sinew/launch/process_end.h"
#include "sinew/rpc/base/process_forks.h"

namespace sinew::internal {
namespace {

namespace fs = std::filesystem;

// Where a process has what came with the request for it. The last one takes the place of the
// channel.
constexpr int kTargets[] = {STDOUT_FILENO, STDERR_FILENO, kReportDescriptor};
// A thread that was joined is there for a moment more.
constexpr auto kThreadPatience = std::chrono::seconds(1);

/// Empty if it cannot be read.
std::vector<fs::path> entries(const char* folder) {
  std::vector<fs::path> result;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::end(at); at.increment(error)) {
    result.push_back(at->path());
  }
  return result;
}

std::size_t thread_count() { return entries("/proc/self/task").size(); }

/// Libraries that start threads when they are loaded, as OpenBLAS does, end them before a fork and
/// start them again when they need them.
void end_idle_threads() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  const auto deadline = std::chrono::steady_clock::now() + kThreadPatience;
  while (thread_count() > 1 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// A file, connection or device that the program has open, which forked processes would share.
/// Whoever has begun with CUDA has.
std::optional<std::string> foreign_descriptor() {
  for (const fs::path& entry : entries("/proc/self/fd")) {
    const int number = std::atoi(entry.filename().c_str());
    if (number <= kChannelDescriptor) continue;
    std::error_code error;
    const std::string target = fs::read_symlink(entry, error).string();
    // That of the list itself is closed by now.
    if (!error) return absl::StrCat(number, " (", target, ")");
  }
  return std::nullopt;
}

/// Why processes that this one forks would not be as good as those that exec; empty: they are.
std::string obstacle() {
  if (thread_count() > 1) end_idle_threads();
  const std::size_t threads = thread_count();
  if (threads != 1) {
    return absl::StrCat("there are ", threads, " threads when main() calls init_launch()");
  }
  if (!ProcessForks::may_start_workers()) {
    return "a worker was started before main() calls init_launch()";
  }
  if (const std::optional<std::string> descriptor = foreign_descriptor()) {
    return absl::StrCat("the descriptor ", *descriptor, " is open when main() calls init_launch()");
  }
  return "";
}

class ForkService {
 public:
  ForkService() : channel_(FileDescriptor(kChannelDescriptor)), self_(::getpid()) {
    ::fcntl(kChannelDescriptor, F_SETFD, FD_CLOEXEC);
    // What the terminal or a user sends to all of them is for the processes; this one has to tell
    // what became of them.
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, &blocked_before_);
    struct sigaction by_default {};
    by_default.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &by_default, &child_action_before_);
    ::prctl(PR_GET_NAME, name_before_);
    ::prctl(PR_SET_NAME, "sinew-forks");
  }

  /// True in a process that was forked, whose rank it sets; false in this one, in the end.
  std::optional<int> serve() {
    send({ForkMessage::Kind::kReady, 0, 0, obstacle(), {}});
    // What is buffered would be written by all.
    std::cout.flush();
    std::clog.flush();
    std::fflush(nullptr);
    while (true) {
      const absl::StatusOr<ForkMessage> request = channel_.receive(ForkChannel::Wait::kForEver);
      if (!request.ok()) break;
      if (fork_one(*request) == Side::kForked) return request->number;
    }
    tell_ends();
    return std::nullopt;
  }

 private:
  enum class Side { kServer, kForked };

  void send(const ForkMessage& message) const {
    // There is no use for a server whose parent is gone.
    if (!channel_.send(message).ok()) ::_exit(1);
  }

  Side fork_one(const ForkMessage& request) {
    if (request.descriptors.size() != std::size(kTargets)) {
      // There is no room for more here.
      send({ForkMessage::Kind::kNotForked, EMFILE, 0, "", {}});
      return Side::kServer;
    }
    const pid_t pid = ::fork();
    if (pid == 0) {
      become(request);
      return Side::kForked;
    }
    if (pid < 0) {
      send({ForkMessage::Kind::kNotForked, errno, 0, "", {}});
      return Side::kServer;
    }
    // Nobody has waited for it yet, so that the number is no other's.
    ForkMessage answer{ForkMessage::Kind::kForked, pid, 0, "", {}};
    answer.descriptors.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!answer.descriptors.front().valid()) {
      answer = {ForkMessage::Kind::kNotForked, errno, 0, "", {}};
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    send(answer);
    return Side::kServer;
  }

  /// In a process that was forked.
  void become(const ForkMessage& request) {
    const bool is_guarded = ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
    // The server may have gone before the kernel was told what to do then.
    if (!is_guarded || ::getppid() != self_) ::_exit(127);
    for (std::size_t i = 0; i < std::size(kTargets); ++i) {
      if (::dup2(request.descriptors[i].number(), kTargets[i]) < 0) ::_exit(127);
    }
    for (const absl::string_view variable : absl::StrSplit(request.text, '\0', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(variable, absl::MaxSplits('=', 1));
      ::setenv(parts.first.c_str(), parts.second.c_str(), 1);
    }
    ::prctl(PR_SET_NAME, name_before_);
    // Copies of what another process has made: to take LibTorch's tables of operators apart takes
    // longer than all else that a short process does.
    ProcessForks::skip_libraries_at_exit();
    ::sigaction(SIGCHLD, &child_action_before_, nullptr);
    ::sigprocmask(SIG_SETMASK, &blocked_before_, nullptr);
  }

  void tell_ends() const {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, 0)) > 0;) {
      if (WIFEXITED(status)) {
        send({ForkMessage::Kind::kExited, pid, WEXITSTATUS(status), "", {}});
      } else {
        send({ForkMessage::Kind::kSignalled, pid, WTERMSIG(status), "", {}});
      }
    }
  }

  // Lives as long as the process: in those that were forked its number is the report's.
  const ForkChannel channel_;
  const pid_t self_;
  sigset_t blocked_before_ = {};
  struct sigaction child_action_before_ = {};
  char name_before_[16] = {};
};

}  // namespace

SpawnTicket serve_forks(SpawnTicket::Kind kind) {
  static auto& service = *new ForkService();
  const std::optional<int> rank = service.serve();
  if (!rank) ::_exit(0);
  return {SpawnTicket::Role::kProcess, *rank, kind};
}

}  // namespace sinew::internal
