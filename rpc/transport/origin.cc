#include "sinew/rpc/transport/origin.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kNetworkBytes = 8;

std::string text_of(int family, const void* address) {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(family, address, text, sizeof text);
  return text;
}

std::string network_of(in6_addr address) {
  if (IN6_IS_ADDR_V4MAPPED(&address)) return text_of(AF_INET, &address.s6_addr[12]);
  std::memset(&address.s6_addr[kNetworkBytes], 0, sizeof address.s6_addr - kNetworkBytes);
  return text_of(AF_INET6, &address);
}

/// The address in what gRPC calls the other end of a connection of IPv6, a URI.
std::string ipv6_literal(absl::string_view host) {
  std::string literal = absl::StrReplaceAll(host, {{"%5B", ""}, {"%5D", ""}});
  literal = absl::StrReplaceAll(literal, {{"[", ""}, {"]", ""}});
  literal.resize(std::min(literal.size(), literal.find('%')));
  return literal;
}

std::string host_text(const in6_addr& address) {
  if (IN6_IS_ADDR_V4MAPPED(&address)) return text_of(AF_INET, &address.s6_addr[12]);
  return absl::StrCat("[", text_of(AF_INET6, &address), "]");
}

}  // namespace

std::string origin_of(absl::string_view peer) {
  if (absl::StartsWith(peer, "fd:") || absl::StartsWith(peer, "unix")) return kOwnUser;
  const absl::string_view host = peer.substr(0, peer.rfind(':'));
  if (absl::ConsumePrefix(&peer, "ipv4:")) return std::string(host.substr(5));
  if (!absl::StartsWith(peer, "ipv6:")) return std::string(host);
  const std::string literal = ipv6_literal(host.substr(5));
  in6_addr address{};
  if (::inet_pton(AF_INET6, literal.c_str(), &address) != 1) return literal;
  return network_of(address);
}

std::string origin_of(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_INET) {
    return text_of(AF_INET, &reinterpret_cast<const sockaddr_in&>(peer).sin_addr);
  }
  if (peer.ss_family == AF_INET6) {
    return network_of(reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr);
  }
  return kOwnUser;
}

std::string endpoint_of(absl::string_view peer) {
  if (absl::ConsumePrefix(&peer, "ipv4:")) return std::string(peer);
  if (!absl::ConsumePrefix(&peer, "ipv6:")) return std::string(peer);
  const std::size_t colon = std::min(peer.size(), peer.rfind(':'));
  in6_addr address{};
  if (::inet_pton(AF_INET6, ipv6_literal(peer.substr(0, colon)).c_str(), &address) != 1) {
    return std::string(peer);
  }
  return absl::StrCat(host_text(address), peer.substr(colon));
}

std::string endpoint_of(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(peer);
    return absl::StrCat(text_of(AF_INET, &address.sin_addr), ":", ntohs(address.sin_port));
  }
  if (peer.ss_family != AF_INET6) return kOwnUser;
  const auto& address = reinterpret_cast<const sockaddr_in6&>(peer);
  return absl::StrCat(host_text(address.sin6_addr), ":", ntohs(address.sin6_port));
}

}  // namespace sinew::internal
