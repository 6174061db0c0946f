#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// A file descriptor of a socket, which it closes.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int fd() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
};

// Of `host_port`, a literal with its port. All are non-blocking, and no child inherits them.

/// kAlreadyExists when the address is in use.
absl::StatusOr<Socket> listen_at(const std::string& host_port);
/// kUnavailable when there is no answer.
absl::StatusOr<Socket> connect_to(const std::string& host_port, Clock::TimePoint deadline);
int port_of(const Socket& socket);

/// Waits until the socket can be read; false when the deadline has passed.
absl::StatusOr<bool> wait_readable(const Socket& socket, Clock::TimePoint deadline);
/// kUnavailable when the other end has gone, kDeadlineExceeded when it does not read.
absl::Status send_all(const Socket& socket, const std::string& bytes, Clock::TimePoint deadline);

}  // namespace sinew::internal
