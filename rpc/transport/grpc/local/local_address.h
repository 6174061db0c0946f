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

/// The addresses that `host_port` stands for at present, each with its port: itself, if it has a
/// literal. Looks names up as the system does, which blocks. kInvalidArgument for a text that
/// is no address; kUnavailable when the host is unknown.
absl::StatusOr<std::vector<std::string>> addresses_of(const std::string& host_port);

/// Whether `host`, a literal or "localhost", is an address of this machine. Other names are not
/// looked up: false.
bool is_local_address(const std::string& host);

}  // namespace sinew::internal
