#include "sinew/rpc/transport/grpc/local/local_address.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/base/loopback.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"

namespace sinew::internal {
namespace {

/// The address as a literal, without its port; empty if it is none of IP.
std::string literal(const sockaddr& address) {
  const socklen_t size = address.sa_family == AF_INET    ? sizeof(sockaddr_in)
                         : address.sa_family == AF_INET6 ? sizeof(sockaddr_in6)
                                                         : 0;
  char text[NI_MAXHOST];
  if (size == 0 ||
      ::getnameinfo(&address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return text;
}

/// Empty, with errno set, when no route leads there.
std::string source_address(const addrinfo& target) {
  // Connecting a datagram socket only asks the kernel for a route.
  const FileDescriptor probe(::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe.valid()) return "";
  if (::connect(probe.number(), target.ai_addr, target.ai_addrlen) != 0) return "";
  sockaddr_storage source{};
  socklen_t size = sizeof source;
  if (::getsockname(probe.number(), reinterpret_cast<sockaddr*>(&source), &size) != 0) return "";
  return literal(reinterpret_cast<const sockaddr&>(source));
}

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::StatusOr<AddressList> look_up(const std::string& host_port, const HostPort& target) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // A route does not depend on the port, but connecting to port 0 fails on some systems.
  const std::string port = std::to_string(target.port == 0 ? 1 : target.port);
  const int error = ::getaddrinfo(target.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("the host of ", host_port, " is unknown: ", ::gai_strerror(error)));
  }
  return AddressList(found, ::freeaddrinfo);
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return addresses;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(found, ::freeifaddrs);
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    std::string host = literal(*each->ifa_addr);
    if (!host.empty()) addresses.push_back(std::move(host));
  }
  return addresses;
}

}  // namespace

absl::StatusOr<std::string> local_address_towards(const std::string& host_port) {
  const absl::StatusOr<HostPort> target = parse_host_port(host_port);
  if (!target.ok()) return target.status();
  const absl::StatusOr<AddressList> found = look_up(host_port, *target);
  if (!found.ok()) return found.status();
  for (const addrinfo* each = found->get(); each != nullptr; each = each->ai_next) {
    std::string source = source_address(*each);
    if (!source.empty()) return source;
  }
  return absl::UnavailableError(
      absl::StrCat("no route leads to ", host_port, ": ", std::strerror(errno)));
}

absl::StatusOr<std::string> outside_address() {
  // Addresses for documents (RFC 5737, 3849): no host has them, and nothing is sent.
  for (const char* somewhere : {"192.0.2.1:9", "[2001:db8::1]:9"}) {
    const absl::StatusOr<std::string> source = local_address_towards(somewhere);
    if (source.ok() && !is_loopback(*source)) return source;
  }
  for (const std::string& host : own_addresses()) {
    if (!is_loopback(host)) return host;
  }
  return absl::UnavailableError("this machine has no address but loopback");
}

bool is_own_name_on_loopback(const std::string& host_port) {
  const absl::StatusOr<HostPort> target = parse_host_port(host_port);
  return target.ok() && !target->is_loopback() && leads_to_loopback(target->host);
}

absl::StatusOr<std::vector<std::string>> addresses_of(const std::string& host_port) {
  const absl::StatusOr<HostPort> target = parse_host_port(host_port);
  if (!target.ok()) return target.status();
  if (target->is_ipv4() || target->is_ipv6()) return std::vector<std::string>{host_port};
  const absl::StatusOr<AddressList> found = look_up(host_port, *target);
  if (!found.ok()) return found.status();
  std::vector<std::string> addresses;
  for (const addrinfo* each = found->get(); each != nullptr; each = each->ai_next) {
    const std::string host = literal(*each->ai_addr);
    if (!host.empty()) addresses.push_back(join_host_port(host, target->port));
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

bool is_local_address(const std::string& host) {
  if (is_loopback(host)) return true;
  const std::vector<std::string> own = own_addresses();
  return std::find(own.begin(), own.end(), host) != own.end();
}

}  // namespace sinew::internal
