#include "sinew/rpc/base/loopback.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

#include "absl/strings/match.h"

namespace sinew::internal {
namespace {

bool is_loopback_address(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
  }
  if (address.sa_family != AF_INET6) return false;
  const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&ipv6);
}

}  // namespace

bool is_loopback(const std::string& host) {
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  if (inet_pton(AF_INET, host.c_str(), &ipv4.sin_addr) == 1) {
    return is_loopback_address(reinterpret_cast<const sockaddr&>(ipv4));
  }
  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  if (inet_pton(AF_INET6, host.c_str(), &ipv6.sin6_addr) == 1) {
    return is_loopback_address(reinterpret_cast<const sockaddr&>(ipv6));
  }
  return absl::EqualsIgnoreCase(host, "localhost");
}

bool leads_to_loopback(const std::string& host) {
  if (is_loopback(host)) return true;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (!is_loopback_address(*each->ai_addr)) return false;
  }
  return true;
}

}  // namespace sinew::internal
