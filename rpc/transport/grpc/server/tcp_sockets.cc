#include "sinew/rpc/transport/grpc/server/tcp_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/transport/grpc/connection/channel.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"

namespace sinew::internal {
namespace {

absl::Status cannot_listen(const std::string& address, int error) {
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(
        absl::StrCat("cannot listen on ", address, ": another process uses this port"));
  }
  const std::string text = absl::StrCat("cannot listen on ", address, ": ", std::strerror(error));
  if (error == EMFILE || error == ENFILE) return absl::ResourceExhaustedError(text);
  return error == EACCES ? absl::PermissionDeniedError(text) : absl::InvalidArgumentError(text);
}

void set(const FileDescriptor& socket, int level, int option, int value) {
  // What the system does not know it does without.
  ::setsockopt(socket.number(), level, option, &value, sizeof value);
}

enum class Versions { kOne, kBoth };

/// Invalid, with errno set, when it cannot be had. What is set here goes to accepted sockets too.
FileDescriptor listen_at(const sockaddr* address, socklen_t size, Versions versions,
                         std::chrono::milliseconds give_up_after) {
  FileDescriptor socket(
      ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return socket;
  set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(give_up_after.count()));
  if (address->sa_family == AF_INET6) {
    set(socket, IPPROTO_IPV6, IPV6_V6ONLY, versions == Versions::kBoth ? 0 : 1);
  }
  if (::bind(socket.number(), address, size) != 0 || ::listen(socket.number(), SOMAXCONN) != 0) {
    const int error = errno;
    socket = FileDescriptor();
    errno = error;
  }
  return socket;
}

int port_of(const FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

void set_port(sockaddr* address, int port) {
  auto& where = address->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                               : reinterpret_cast<sockaddr_in*>(address)->sin_port;
  where = htons(static_cast<std::uint16_t>(port));
}

/// Whether all of it is loopback, as far as insecure credentials ask for that.
absl::Status check_each_reach(const addrinfo* found, const std::string& address,
                              const Credentials& credentials) {
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    char numeric[NI_MAXHOST] = "";
    ::getnameinfo(each->ai_addr, each->ai_addrlen, numeric, sizeof numeric, nullptr, 0,
                  NI_NUMERICHOST);
    absl::Status allowed = check_reach(credentials, HostPort{numeric, 0}.is_loopback(), address);
    if (!allowed.ok()) return allowed;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TcpSockets> listen_on_tcp(const std::string& address, const Credentials& credentials,
                                         std::chrono::milliseconds give_up_after) {
  const absl::StatusOr<HostPort> parsed = parse_host_port(address);
  if (!parsed.ok()) return parsed.status();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(parsed->port);
  if (const int error = ::getaddrinfo(parsed->host.c_str(), port.c_str(), &hints, &found);
      error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", address, ": ", ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  if (absl::Status allowed = check_each_reach(found, address, credentials); !allowed.ok()) {
    return allowed;
  }
  TcpSockets listening;
  if (parsed->is_wildcard()) {
    // All addresses of the machine, whichever version stands for them.
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = in6addr_any;
    any.sin6_port = htons(static_cast<std::uint16_t>(parsed->port));
    FileDescriptor socket = listen_at(reinterpret_cast<const sockaddr*>(&any), sizeof any,
                                      Versions::kBoth, give_up_after);
    if (!socket.valid() && errno == EADDRINUSE) return cannot_listen(address, errno);
    if (socket.valid()) {
      listening.port = port_of(socket);
      listening.sockets.push_back(std::move(socket));
      return listening;
    }
  }
  int error = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    // The versions of one name share a port.
    if (listening.port != 0) set_port(each->ai_addr, listening.port);
    FileDescriptor socket =
        listen_at(each->ai_addr, each->ai_addrlen, Versions::kOne, give_up_after);
    if (!socket.valid()) {
      if (error == 0 || errno == EADDRINUSE) error = errno;
      continue;
    }
    listening.port = port_of(socket);
    listening.sockets.push_back(std::move(socket));
  }
  if (listening.sockets.empty()) return cannot_listen(address, error);
  return listening;
}

}  // namespace sinew::internal
