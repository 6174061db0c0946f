#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/internal/file_descriptor.h"

namespace sinew::internal {

/// What a process that spawns (the parent) and its fork server tell each other.
struct ForkMessage {
  enum class Kind : std::int32_t {
    /// The server has loaded the program. `text` says why it may not fork; empty: it may.
    kReady,
    /// To the server: fork the process of rank `number`. `text` has its own variables
    /// ("NAME=value",
    /// each with a zero byte behind it), `descriptors` its output, error output and report.
    kFork,
    /// `number` is the process id, `descriptors` a pidfd.
    kForked,
    /// `number` is the errno.
    kNotForked,
    /// The process with the id `number` has exited with the code `detail`,
    kExited,
    /// or was ended by the signal `detail`. Sent only after the parent has said all that it will.
    kSignalled,
  };

  Kind kind;
  std::int32_t number = 0;
  std::int32_t detail = 0;
  std::string text;
  std::vector<FileDescriptor> descriptors;
};

/// One end of the socket between them. Not thread-safe.
class ForkChannel {
 public:
  static absl::StatusOr<std::pair<FileDescriptor, FileDescriptor>> make_sockets();
  explicit ForkChannel(FileDescriptor socket) : socket_(std::move(socket)) {}

  int descriptor() const { return socket_.number(); }

  absl::Status send(const ForkMessage& message) const;
  enum class Wait { kNo, kForEver };
  /// kUnavailable: the other end has gone, or has said all that it will; kDeadlineExceeded: with
  /// Wait::kNo, there is none now.
  absl::StatusOr<ForkMessage> receive(Wait wait) const;
  /// The other end is told that nothing more will come.
  void end_sending() const;

 private:
  FileDescriptor socket_;
};

}  // namespace sinew::internal
