#include "sinew/rpc/base/loopback.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

#include "absl/strings/match.h"

namespace sinew::internal {
namespace {

bool is_loopback_address(const in_addr& ipv4) { return ntohl(ipv4.s_addr) >> 24 == 127; }

bool is_loopback_address(const in6_addr& ipv6) { return IN6_IS_ADDR_LOOPBACK(&ipv6); }

bool is_loopback_address(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return is_loopback_address(reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  }
  return address.sa_family == AF_INET6 &&
         is_loopback_address(reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace

bool is_loopback(const std::string& host) {
  in_addr ipv4{};
  if (inet_pton(AF_INET, host.c_str(), &ipv4) == 1) return is_loopback_address(ipv4);
  in6_addr ipv6{};
  if (inet_pton(AF_INET6, host.c_str(), &ipv6) == 1) return is_loopback_address(ipv6);
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
