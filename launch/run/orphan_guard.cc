#include "sinew/launch/run/orphan_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

[[noreturn]] void guard(int groups) {
  // Out of reach of the terminal, and of whoever signals the group of its parent.
  ::setsid();
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_NAME, "sinew-run-guard");
  // It must not keep the output open for whoever reads that to its end.
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
    // Its own copy would keep the pipe open for ever.
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
  // If the guard has been killed there is nobody to tell.
  [[maybe_unused]] const ssize_t written = ::write(groups_.number(), &gone, sizeof gone);
}

}  // namespace sinew::internal
