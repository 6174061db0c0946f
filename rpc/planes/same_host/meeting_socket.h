#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/internal/file_descriptor.h"

namespace sinew::internal {

// Unix sockets that keep messages apart (SOCK_SEQPACKET), under abstract names "sinew-plane/<the
// place, in hexadecimal>". A peer names a place, not a name, so it cannot send this process to the
// sockets of other programs. Nothing here blocks; what fails is kUnavailable with the system's
// reason.

absl::StatusOr<FileDescriptor> listen_at(absl::string_view place);

/// nullopt: no process is there, or so many wait that it has to be tried again.
absl::StatusOr<std::optional<FileDescriptor>> connect_to_place(absl::string_view place);

/// The next one that waits; nothing when there is none.
absl::StatusOr<std::optional<FileDescriptor>> accept_at(const FileDescriptor& listener);

/// Has the kernel say with each message that comes who has sent it.
absl::Status ask_for_senders(const FileDescriptor& socket);

/// With this process's credentials. kNotFound when the other end has closed.
absl::Status send_signed(const FileDescriptor& socket, absl::string_view message);

struct SignedMessage {
  std::string bytes;
  ucred sender{};
};
/// nullopt when none has arrived. kNotFound when the other end has closed. kUnavailable also for
/// messages of more than kMaxSignedMessageBytes or without a sender.
absl::StatusOr<std::optional<SignedMessage>> receive_signed(const FileDescriptor& socket);

constexpr std::size_t kMaxSignedMessageBytes = 512;

}  // namespace sinew::internal
