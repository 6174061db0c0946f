#include "sinew/launch/run/orphan_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/named_line.h"

namespace sinew::internal {
namespace {

// What a service manager takes between two of the processes of a job.
constexpr std::chrono::milliseconds kPatience{100};

[[noreturn]] void guard(int groups) {
  // A group of its own, as the processes have: what reaches it and was meant for no group has
  // reached them. All signals stay pending.
  ::setpgid(0, 0);
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_NAME, "sinew-run-guard");
  // It must not keep the output open: another program may read that to its end.
  for (int number = 0; number <= STDERR_FILENO; ++number) ::close(number);
  std::set<pid_t> known;
  pid_t group = 0;
  while (true) {
    const ssize_t size = ::read(groups, &group, sizeof group);
    if (size < 0 && errno == EINTR) continue;
    if (size != sizeof group) break;
    if (group > 0) {
      known.insert(group);
    } else {
      known.erase(-group);
    }
  }
  for (const pid_t left : known) ::kill(-left, SIGKILL);
  ::_exit(0);
}

}  // namespace

OrphanGuard::OrphanGuard() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw_error(absl::ErrnoToStatus(errno, "cannot guard the processes"));
  }
  FileDescriptor groups(ends[0]);
  groups_ = FileDescriptor(ends[1]);
  pid_ = ::fork();
  if (pid_ < 0) throw_error(absl::ErrnoToStatus(errno, "cannot guard the processes"));
  if (pid_ == 0) {
    // Its own copy would keep the pipe open without limit.
    ::close(groups_.release());
    guard(groups.number());
  }
}

OrphanGuard::~OrphanGuard() {
  groups_ = FileDescriptor();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void OrphanGuard::forget(pid_t group) const {
  const pid_t gone = -group;
  // If the guard has been killed the write fails, and that does no harm.
  [[maybe_unused]] const ssize_t written = ::write(groups_.number(), &gone, sizeof gone);
}

bool OrphanGuard::gets(int signal) const {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  do {
    const auto pending = named_line(absl::StrCat("/proc/", pid_, "/status"), "ShdPnd:");
    std::uint64_t signals = 0;
    if (!pending || !absl::SimpleHexAtoi(*pending, &signals)) return false;
    if ((signals >> (signal - 1) & 1) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace sinew::internal
