#pragma once

#include <sys/socket.h>

#include <string>

#include "absl/strings/string_view.h"

namespace sinew::internal {

// Where a connection comes from, as those are told apart who share a quota: a host of IPv4, a
// network of 64 bits of IPv6 (of which one stranger has all addresses), or this user's own
// processes on this host.

/// Clients that connected through a Unix socket: see local_socket.h.
inline constexpr char kOwnUser[] = "unix";

/// `peer` is what gRPC calls the other end.
std::string origin_of(absl::string_view peer);
std::string origin_of(const sockaddr_storage& peer);

/// The one connection, as "host:port". `peer` is what gRPC calls its other end.
std::string endpoint_of(absl::string_view peer);
std::string endpoint_of(const sockaddr_storage& peer);

}  // namespace sinew::internal
