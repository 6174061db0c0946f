#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "sinew/rpc/base/internal/file_descriptor.h"

namespace sinew::internal {

/// A port on which no process listens, on any interface of this host. As long as this lives no
/// other reservation of this host gets it. It lies outside the range of ephemeral ports of the
/// system, if there is room.
class PortReservation {
 public:
  /// kResourceExhausted: there is none.
  static absl::StatusOr<PortReservation> make();

  int port() const { return port_; }

 private:
  PortReservation(int port, FileDescriptor name) : port_(port), name_(std::move(name)) {}

  int port_;
  // An abstract socket, whose name is taken while it is open, and which is, as ports are, one of
  // the network namespace.
  FileDescriptor name_;
};

}  // namespace sinew::internal
