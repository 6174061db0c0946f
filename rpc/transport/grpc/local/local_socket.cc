#include "sinew/rpc/transport/grpc/local/local_socket.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/transport/grpc/local/local_address.h"

namespace sinew::internal {
namespace {

// While the process has no file descriptor left: how long the others wait.
constexpr int kPauseMs = 100;

struct Name {
  sockaddr_un address{};
  socklen_t size = 0;
};

Name name_of(absl::string_view host, int port) {
  Name name;
  name.address.sun_family = AF_UNIX;
  // Host names have 253 bytes at most, which a name has no room for; those are left to TCP.
  const std::string text = absl::StrCat("sinew/", join_host_port(host, port));
  if (text.size() >= sizeof name.address.sun_path) return name;
  // The zero byte before it makes it abstract: it has no place in the file system.
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());
  name.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

// How a worker that listens on all addresses is called.
constexpr absl::string_view kAnyHost = "*";

FileDescriptor unix_socket() {
  return FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// Of the other end: anybody may take a name, and connect to one.
bool is_of_this_user(const FileDescriptor& connected) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(connected.number(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

FileDescriptor connect_to(absl::string_view host, int port) {
  const Name name = name_of(host, port);
  FileDescriptor socket = unix_socket();
  if (name.size == 0 || !socket.valid() ||
      ::connect(socket.number(), reinterpret_cast<const sockaddr*>(&name.address), name.size) !=
          0 ||
      !is_of_this_user(socket)) {
    return FileDescriptor();
  }
  return socket;
}

}  // namespace

std::unique_ptr<LocalListener> LocalListener::open(const std::vector<HostPort>& addresses,
                                                   OnConnection on_connection) {
  std::vector<FileDescriptor> sockets;
  for (const HostPort& address : addresses) {
    const Name name = name_of(address.is_wildcard() ? kAnyHost : address.host, address.port);
    FileDescriptor socket = unix_socket();
    if (name.size == 0 || !socket.valid()) continue;
    const auto* bound = reinterpret_cast<const sockaddr*>(&name.address);
    if (::bind(socket.number(), bound, name.size) != 0) continue;
    if (::listen(socket.number(), SOMAXCONN) != 0) continue;
    sockets.push_back(std::move(socket));
  }
  FileDescriptor stop(::eventfd(0, EFD_CLOEXEC));
  if (sockets.empty() || !stop.valid()) return nullptr;
  try {
    return std::unique_ptr<LocalListener>(
        new LocalListener(std::move(sockets), std::move(stop), std::move(on_connection)));
  } catch (const std::system_error&) {
    return nullptr;  // No more threads.
  }
}

LocalListener::LocalListener(std::vector<FileDescriptor> sockets, FileDescriptor stop,
                             OnConnection on_connection)
    : sockets_(std::move(sockets)),
      stop_(std::move(stop)),
      on_connection_(std::move(on_connection)),
      thread_([this] {
        pthread_setname_np(pthread_self(), "sinew-accept");
        serve();
      }) {}

LocalListener::~LocalListener() {
  const std::uint64_t one = 1;
  // Fails for a full counter only, which wakes as well.
  [[maybe_unused]] const auto written = ::write(stop_.number(), &one, sizeof one);
  thread_.join();
}

void LocalListener::serve() {
  std::vector<pollfd> all;
  for (const FileDescriptor& socket : sockets_) all.push_back({socket.number(), POLLIN, 0});
  all.push_back({stop_.number(), POLLIN, 0});
  while (true) {
    const bool polled = ::poll(all.data(), all.size(), -1) >= 0;
    if (polled && all.back().revents != 0) return;
    const bool served =
        polled && std::all_of(sockets_.begin(), sockets_.end(),
                              [&](const FileDescriptor& socket) { return accept_one(socket); });
    if (!served) ::poll(&all.back(), 1, kPauseMs);
  }
}

// False: another attempt right now would fail too.
bool LocalListener::accept_one(const FileDescriptor& socket) {
  FileDescriptor accepted(
      ::accept4(socket.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!accepted.valid()) return errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
  if (is_of_this_user(accepted)) on_connection_(std::move(accepted));
  return true;
}

FileDescriptor connect_locally(const HostPort& address) {
  FileDescriptor socket = connect_to(address.host, address.port);
  if (!socket.valid() && is_local_address(address.host)) {
    socket = connect_to(kAnyHost, address.port);
  }
  return socket;
}

}  // namespace sinew::internal
