#include "sinew/groups/internal/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "sinew/groups/internal/store_timeout.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"

namespace sinew::internal {
namespace {

constexpr int kBacklog = 1024;
constexpr std::uint64_t kLongestPollMs = 1000 * 3600;

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> addresses_of_literal(const std::string& host_port) {
  const absl::StatusOr<HostPort> parsed = parse_host_port(host_port);
  if (!parsed.ok()) return parsed.status();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_NUMERICHOST;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(parsed->host.c_str(), std::to_string(parsed->port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the address ", host_port, " cannot be used: ", gai_strerror(error)));
  }
  return Addresses(found);
}

Socket open_socket(const addrinfo& address) {
  return Socket(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
}

absl::StatusOr<bool> wait_for(const Socket& socket, short events, Clock::TimePoint deadline) {
  for (;;) {
    const std::uint64_t left = std::min(milliseconds_until(deadline), kLongestPollMs);
    pollfd polled{socket.fd(), events, 0};
    const int ready = poll(&polled, 1, static_cast<int>(left));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) {
      return absl::InternalError(absl::StrCat("poll() failed: ", std::strerror(errno)));
    }
    if (Clock::system().now() >= deadline) return false;
  }
}

}  // namespace

void Socket::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

absl::StatusOr<Socket> listen_at(const std::string& host_port) {
  absl::StatusOr<Addresses> address = addresses_of_literal(host_port);
  if (!address.ok()) return address.status();
  Socket socket = open_socket(**address);
  const int on = 1;
  if (!socket.valid() || setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(socket.fd(), (*address)->ai_addr, (*address)->ai_addrlen) != 0 ||
      listen(socket.fd(), kBacklog) != 0) {
    const std::string text =
        absl::StrCat("cannot listen at ", host_port, ": ", std::strerror(errno));
    if (errno == EADDRINUSE) return absl::AlreadyExistsError(text);
    if (errno == EACCES) return absl::PermissionDeniedError(text);
    return absl::UnavailableError(text);
  }
  return socket;
}

absl::StatusOr<Socket> connect_to(const std::string& host_port, Clock::TimePoint deadline) {
  absl::StatusOr<Addresses> address = addresses_of_literal(host_port);
  if (!address.ok()) return address.status();
  Socket socket = open_socket(**address);
  const auto failed = [&](int error) {
    return absl::UnavailableError(
        absl::StrCat("no answer at ", host_port, ": ", std::strerror(error)));
  };
  if (!socket.valid()) return failed(errno);
  if (connect(socket.fd(), (*address)->ai_addr, (*address)->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return failed(errno);
    const absl::StatusOr<bool> ready = wait_for(socket, POLLOUT, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return failed(ETIMEDOUT);
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return failed(error);
  }
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

int port_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

absl::StatusOr<bool> wait_readable(const Socket& socket, Clock::TimePoint deadline) {
  return wait_for(socket, POLLIN, deadline);
}

absl::Status send_all(const Socket& socket, const std::string& bytes, Clock::TimePoint deadline) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = send(socket.fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<std::size_t>(count);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return absl::UnavailableError(std::strerror(errno));
    const absl::StatusOr<bool> ready = wait_for(socket, POLLOUT, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return absl::DeadlineExceededError("the other end does not read");
  }
  return absl::OkStatus();
}

}  // namespace sinew::internal
