#pragma once

#include <vector>

#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"

namespace sinew::internal {

// Workers of one host reach each other through Unix sockets, which cost less than TCP over
// loopback. For each address that a worker listens on there is one with an abstract name made of
// it. Such names belong to the network namespace, as ports do, so they are unique as long as these
// are.

/// Sockets that listen in addition to TCP on `addresses`, with their real ports. A socket that the
/// system forbids, or whose name is in use, is left out: then there is only TCP.
std::vector<FileDescriptor> listen_locally(const std::vector<HostPort>& addresses);

/// Whether the other end of a Unix socket is a process of this user: anybody may take a name, and
/// connect to one.
bool is_of_this_user(const FileDescriptor& connected);

/// A socket that is connected to the worker which listens on TCP at `address`; none when no process
/// of this user and network namespace does with listen_locally(). Does not block.
FileDescriptor connect_locally(const HostPort& address);

}  // namespace sinew::internal
