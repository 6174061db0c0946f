#include "sinew/rpc/planes/same_host/peer_process.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/named_line.h"
#include "sinew/rpc/base/internal/system_call.h"

// Newer than the headers of some systems.
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace sinew::internal {
namespace {

absl::Status unreachable_process(pid_t number, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("process ", number, ": ", why));
}

FileDescriptor hold_of(const FileDescriptor& socket, pid_t number, PeerProcess::Source source) {
  if (source == PeerProcess::Source::kSocket) {
    int hold = -1;
    socklen_t size = sizeof hold;
    if (::getsockopt(socket.number(), SOL_SOCKET, SO_PEERPIDFD, &hold, &size) == 0) {
      return FileDescriptor(hold);
    }
    if (errno != ENOPROTOOPT) return FileDescriptor();
  }
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, number, 0)));
}

/// The number that the process has in /proc, which may be that of another namespace.
std::optional<pid_t> number_in_proc(const FileDescriptor& hold) {
  const auto line = named_line(absl::StrCat("/proc/self/fdinfo/", hold.number()), "Pid:");
  pid_t number = 0;
  const bool is_there = line && absl::SimpleAtoi(*line, &number) && number > 0;
  return is_there ? std::make_optional(number) : std::nullopt;
}

bool have_same(absl::string_view kind, pid_t number) {
  struct stat here {};
  struct stat there {};
  return ::stat(absl::StrCat("/proc/self/ns/", kind).c_str(), &here) == 0 &&
         ::stat(absl::StrCat("/proc/", number, "/ns/", kind).c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

}  // namespace

absl::StatusOr<PeerProcess> PeerProcess::of(const FileDescriptor& socket, Source source) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return absl::UnavailableError(
        absl::StrCat("the process at the other end is not known: ", std::strerror(errno)));
  }
  if (peer.pid <= 0) {
    return absl::UnavailableError(
        "the peer's process is not visible here; it may be in another container");
  }
  // The system lets root read everybody's memory, but a worker of root has no business there.
  if (peer.uid != ::geteuid()) return unreachable_process(peer.pid, "belongs to another user");
  FileDescriptor hold = hold_of(socket, peer.pid, source);
  if (!hold.valid()) return unreachable_process(peer.pid, call_failure("pidfd_open", errno));
  PeerProcess process(peer.pid, std::move(hold));
  if (absl::Status status = process.check_namespaces(); !status.ok()) return status;
  return process;
}

// The same user id in another user namespace is another user, who may be root there and send any
// credentials.
absl::Status PeerProcess::check_namespaces() const {
  const std::optional<pid_t> in_proc = number_in_proc(hold_);
  const bool same =
      in_proc.has_value() && have_same("user", *in_proc) && have_same("pid", *in_proc);
  // In this order: it was the process's number until now.
  if (!is_alive()) return unreachable("has ended");
  if (!same) {
    return unreachable("is in another namespace of users or processes, or /proc does not show it");
  }
  return absl::OkStatus();
}

bool PeerProcess::is_sender(const ucred& credentials) const {
  return credentials.pid == number_ && credentials.uid == ::geteuid();
}

bool PeerProcess::is_alive() const { return look() == 0; }

bool PeerProcess::has_ended() const { return (look() & POLLIN) != 0; }

// What the hold says: nothing as long as the process lives.
short PeerProcess::look() const {
  pollfd hold{hold_.number(), POLLIN, 0};
  int changed = 0;
  do {
    changed = ::poll(&hold, 1, 0);
  } while (changed < 0 && errno == EINTR);
  return changed < 0 ? POLLERR : hold.revents;
}

absl::Status PeerProcess::unreachable(absl::string_view why) const {
  return unreachable_process(number_, why);
}

}  // namespace sinew::internal
