#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sinew::internal {

/// The address of this machine that packets to `host_port` carry as their source: what to advertise
/// to those who share a network with it. No packet is sent, but a host name is looked up, which
/// blocks. kInvalidArgument for a text that is no address; kUnavailable when the host is unknown or
/// no route leads there.
absl::StatusOr<std::string> local_address_towards(const std::string& host_port);

/// The address of this machine by which others reach it, as far as it can know: that of its default
/// route, or the first one that is not loopback. kUnavailable when it has none.
absl::StatusOr<std::string> outside_address();

/// Whether who is to be found at `host_port`, a name of this machine's own that leads to loopback
/// here, is found there by others under another address: 127.0.1.1 as opposed to 127.0.0.1 itself
/// or "localhost", which mean this machine. Looks the name up, which blocks.
bool is_own_name_on_loopback(const std::string& host_port);

/// The addresses that `host_port` stands for at present, each with its port: itself, if it has a
/// literal. Looks names up as the system does, which blocks. kInvalidArgument for a text that
/// is no address; kUnavailable when the host is unknown.
absl::StatusOr<std::vector<std::string>> addresses_of(const std::string& host_port);

/// Whether `host`, a literal or "localhost", is an address of this machine. Other names are not
/// looked up: false.
bool is_local_address(const std::string& host);

}  // namespace sinew::internal
