#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"

namespace sinew::internal {

// Workers of one host reach each other through Unix sockets, which cost less than TCP over
// loopback. For each address that a worker listens on there is one with an abstract name made of
// it. Such names belong to the network namespace, as ports do, so they are unique as long as these
// are.

/// Accepts Unix connections of this user's other processes.
class LocalListener {
 public:
  /// Gets a connected socket, which it owns, on the listener's own thread.
  using OnConnection = std::function<void(FileDescriptor socket)>;

  /// Listens beside TCP on `addresses`, with their real ports. What cannot be had, because the
  /// system forbids it or somebody has the name, is left out: then TCP alone has to do. Null when
  /// that is all.
  static std::unique_ptr<LocalListener> open(const std::vector<HostPort>& addresses,
                                             OnConnection on_connection);
  /// Runs no callback any more when it returns.
  ~LocalListener();
  LocalListener(const LocalListener&) = delete;
  LocalListener& operator=(const LocalListener&) = delete;

 private:
  LocalListener(std::vector<FileDescriptor> sockets, FileDescriptor stop,
                OnConnection on_connection);
  void serve();
  bool accept_one(const FileDescriptor& socket);

  const std::vector<FileDescriptor> sockets_;
  const FileDescriptor stop_;
  const OnConnection on_connection_;
  std::thread thread_;
};

/// A socket that is connected to the worker which listens on TCP at `address`; none when no process
/// of this user and network namespace does with a LocalListener. Does not block.
FileDescriptor connect_locally(const HostPort& address);

}  // namespace sinew::internal
