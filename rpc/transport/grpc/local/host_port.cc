#include "sinew/rpc/transport/grpc/local/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/loopback.h"

namespace sinew::internal {
namespace {

absl::Status no_address(absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", printable(std::string(text), 256),
                   "\" is no address: expected host:port, 1.2.3.4:port or [ipv6]:port"));
}

bool is_host_name(absl::string_view host) {
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
  });
}

}  // namespace

bool HostPort::is_ipv4() const {
  in_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

bool HostPort::is_ipv6() const {
  in6_addr address;
  // A zone ("fe80::1%eth0") is not part of what inet_pton reads.
  return inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &address) == 1;
}

bool HostPort::is_wildcard() const {
  in6_addr address;
  return host == "0.0.0.0" ||
         (inet_pton(AF_INET6, host.c_str(), &address) == 1 && IN6_IS_ADDR_UNSPECIFIED(&address));
}

bool HostPort::is_loopback() const { return internal::is_loopback(host); }

absl::StatusOr<HostPort> parse_host_port(absl::string_view text) {
  HostPort parsed;
  absl::string_view port;
  if (absl::StartsWith(text, "[")) {
    const std::size_t end = text.find("]:");
    if (end == absl::string_view::npos) return no_address(text);
    parsed.host = std::string(text.substr(1, end - 1));
    port = text.substr(end + 2);
    if (!parsed.is_ipv6()) return no_address(text);
  } else {
    const std::size_t colon = text.rfind(':');
    if (colon == absl::string_view::npos) return no_address(text);
    parsed.host = std::string(text.substr(0, colon));
    port = text.substr(colon + 1);
    if (!is_host_name(parsed.host)) return no_address(text);
  }
  const bool digits =
      !port.empty() && port.size() <= 5 && std::all_of(port.begin(), port.end(), [](char c) {
        return absl::ascii_isdigit(static_cast<unsigned char>(c));
      });
  if (!digits || !absl::SimpleAtoi(port, &parsed.port) || parsed.port > 65535) {
    return no_address(text);
  }
  return parsed;
}

std::string join_host_port(absl::string_view host, int port) {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

}  // namespace sinew::internal
