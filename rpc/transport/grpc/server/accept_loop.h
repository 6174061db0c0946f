#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "sinew/rpc/base/internal/file_descriptor.h"

namespace sinew::internal {

/// Accepts connections on a thread of its own. gRPC could listen by itself, but its listeners stop
/// for good once the process has no file descriptor left, and accept every connection.
class AcceptLoop {
 public:
  struct Listener {
    /// Listens, and does not block.
    FileDescriptor socket;
    /// Gets what was accepted, which it owns, on the loop's thread.
    std::function<void(FileDescriptor accepted)> on_connection;
  };

  /// `on_refusal` is told, on the loop's thread, when a connection had to be dropped because the
  /// process has no file descriptor for it. kResourceExhausted when there is none for the loop, or
  /// no thread.
  static absl::StatusOr<std::unique_ptr<AcceptLoop>> start(
      std::vector<Listener> listeners, std::function<void(const std::string&)> on_refusal);
  /// Stops listening. No callback runs any more when it returns.
  ~AcceptLoop();
  AcceptLoop(const AcceptLoop&) = delete;
  AcceptLoop& operator=(const AcceptLoop&) = delete;

 private:
  AcceptLoop(std::vector<Listener> listeners, std::function<void(const std::string&)> on_refusal,
             FileDescriptor stop, FileDescriptor spare);
  void serve();
  bool accept_one(const Listener& listener);
  bool drop_one(const Listener& listener);

  const std::vector<Listener> listeners_;
  const std::function<void(const std::string&)> on_refusal_;
  const FileDescriptor stop_;
  /// Given up for a moment to take a connection, and end it, when there is no other.
  FileDescriptor spare_;
  std::thread thread_;
};

}  // namespace sinew::internal
