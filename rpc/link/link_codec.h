#pragma once

#include <chrono>
#include <cstdint>

#include "absl/status/statusor.h"
#include "sinew/rpc/link/link_messages.h"

namespace sinew::proto {
class Hello;
}

namespace sinew::internal {

/// A duration that came from elsewhere: a year at most, so that it can be added to any time.
std::chrono::microseconds read_duration(std::uint64_t microseconds);

void write_link_hello(const LinkHello& hello, proto::Hello& message);
/// `opener`: of the connection that the hello belongs to. kInvalidArgument for what no worker
/// writes.
absl::StatusOr<LinkHello> read_link_hello(const proto::Hello& message, Incarnation opener);

}  // namespace sinew::internal
