#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/transport/credentials.h"

namespace sinew::internal {

/// Sockets that listen at one address, which may stand for several (a name, a wildcard).
struct TcpSockets {
  std::vector<FileDescriptor> sockets;
  int port = 0;
};

/// Listens on TCP at `address`; port 0 takes any free one. What is sent and not acknowledged for
/// `give_up_after` ends a connection that is accepted there. Errors as in Transport::start().
absl::StatusOr<TcpSockets> listen_on_tcp(const std::string& address, const Credentials& credentials,
                                         std::chrono::milliseconds give_up_after);

}  // namespace sinew::internal
