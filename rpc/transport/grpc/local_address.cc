#include "sinew/rpc/transport/grpc/local_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/transport/grpc/internal/host_port.h"

namespace sinew::internal {
namespace {

struct FileDescriptor {
  explicit FileDescriptor(int opened) : number(opened) {}
  ~FileDescriptor() {
    if (number >= 0) ::close(number);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  const int number;
};

/// Empty, with errno set, when no route leads there.
std::string source_address(const addrinfo& target) {
  // Connecting a datagram socket only asks the kernel for a route.
  const FileDescriptor probe(::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (probe.number < 0) return "";
  if (::connect(probe.number, target.ai_addr, target.ai_addrlen) != 0) return "";
  sockaddr_storage source{};
  socklen_t size = sizeof source;
  if (::getsockname(probe.number, reinterpret_cast<sockaddr*>(&source), &size) != 0) return "";
  char text[NI_MAXHOST];
  if (::getnameinfo(reinterpret_cast<sockaddr*>(&source), size, text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return "";
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> local_address_towards(const std::string& host_port) {
  const absl::StatusOr<HostPort> target = parse_host_port(host_port);
  if (!target.ok()) return target.status();
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // A route does not depend on the port, but connecting to port 0 fails on some systems.
  const std::string port = std::to_string(target->port == 0 ? 1 : target->port);
  if (const int error = ::getaddrinfo(target->host.c_str(), port.c_str(), &hints, &found);
      error != 0) {
    return absl::UnavailableError(
        absl::StrCat("the host of ", host_port, " is unknown: ", ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    std::string source = source_address(*each);
    if (!source.empty()) return source;
  }
  return absl::UnavailableError(
      absl::StrCat("no route leads to ", host_port, ": ", std::strerror(errno)));
}

}  // namespace sinew::internal
