#include "sinew/rpc/transport/grpc/local/local_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/transport/grpc/local/local_address.h"

namespace sinew::internal {
namespace {

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

std::vector<FileDescriptor> listen_locally(const std::vector<HostPort>& addresses) {
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
  return sockets;
}

bool is_of_this_user(const FileDescriptor& connected) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(connected.number(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

FileDescriptor connect_locally(const HostPort& address) {
  FileDescriptor socket = connect_to(address.host, address.port);
  if (!socket.valid() && is_local_address(address.host)) {
    socket = connect_to(kAnyHost, address.port);
  }
  return socket;
}

}  // namespace sinew::internal
