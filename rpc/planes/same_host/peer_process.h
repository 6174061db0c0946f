#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/base/process_hold.h"

namespace sinew::internal {

/// Another process of this host and user, and hold of it: while is_alive(), no other process has
/// its number. Thread-safe.
class PeerProcess final : public ProcessHold {
 public:
  /// Where the hold comes from.
  enum class Source {
    /// The socket, where the kernel can (Linux 6.5); else as below.
    kSocket,
    /// The number that the socket has. It may belong to another process by now, until the process
    /// has sent something in which the kernel says the same: see is_sender().
    kNumber,
  };
  /// The process that connected `socket`, or listened for it, by the kernel's word. kUnavailable,
  /// with the reason, unless it is of this process's user, user namespace and namespace of
  /// processes.
  static absl::StatusOr<PeerProcess> of(const FileDescriptor& socket, Source source);

  pid_t number() const { return number_; }
  /// Whether what came with these credentials was sent by it, if it is alive now.
  bool is_sender(const ucred& credentials) const;
  /// False once it has exited; true after exec. One system call.
  bool is_alive() const;
  /// As !is_alive(), but where the system cannot say, nothing is proved.
  bool has_ended() const override;
  /// kUnavailable with the number.
  absl::Status unreachable(absl::string_view why) const;

 private:
  PeerProcess(pid_t number, FileDescriptor hold) : number_(number), hold_(std::move(hold)) {}
  absl::Status check_namespaces() const;
  short look() const;

  pid_t number_;
  FileDescriptor hold_;
};

}  // namespace sinew::internal
