#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sinew::internal {

/// An address as people write it: "host:port", "1.2.3.4:port" or "[ipv6]:port".
struct HostPort {
  /// Without brackets.
  std::string host;
  int port = 0;

  bool is_ipv4() const;
  bool is_ipv6() const;
  bool is_wildcard() const;
  /// As is_loopback() of rpc/base/loopback.h: no name is looked up.
  bool is_loopback() const;
};

/// kInvalidArgument, naming the text, when it is no address.
absl::StatusOr<HostPort> parse_host_port(absl::string_view text);

/// Puts an IPv6 literal in brackets.
std::string join_host_port(absl::string_view host, int port);

}  // namespace sinew::internal
