#include "sinew/rpc/planes/same_host/meeting_socket.h"

#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

// Strangers who see the name among those of the system may stand in the way; so many at once.
constexpr int kBacklog = 16;

struct SocketName {
  sockaddr_un address{};
  socklen_t size = 0;

  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&address); }
};

absl::StatusOr<SocketName> name_of(absl::string_view place) {
  SocketName name;
  const std::string text = absl::StrCat("sinew-plane/", absl::BytesToHexString(place));
  if (text.size() >= sizeof name.address.sun_path) {
    return absl::InvalidArgumentError("a place to meet with too long a name");
  }
  name.address.sun_family = AF_UNIX;
  // The zero byte before it makes it abstract: it has no place in the file system.
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());
  name.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

absl::Status failed(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// Who closes says why at its own end, if it is worth saying.
absl::Status broken_off() { return absl::NotFoundError("the peer has broken the meeting off"); }

bool says_closed(int error) { return error == EPIPE || error == ECONNRESET; }

FileDescriptor new_socket() {
  return FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// Room for the credentials of one sender, and for nothing else that one might attach.
union Control {
  cmsghdr header;
  std::array<char, CMSG_SPACE(sizeof(ucred))> bytes;
};

std::optional<ucred> sender_of(msghdr& message) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_CREDENTIALS ||
        header->cmsg_len != CMSG_LEN(sizeof(ucred))) {
      continue;
    }
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
    return sender;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<FileDescriptor> listen_at(absl::string_view place) {
  const absl::StatusOr<SocketName> name = name_of(place);
  if (!name.ok()) return name.status();
  FileDescriptor socket = new_socket();
  if (!socket.valid()) return failed("no Unix socket");
  if (::bind(socket.number(), name->generic(), name->size) != 0 ||
      ::listen(socket.number(), kBacklog) != 0) {
    return failed("no Unix socket to be met at");
  }
  return socket;
}

absl::StatusOr<std::optional<FileDescriptor>> connect_to_place(absl::string_view place) {
  const absl::StatusOr<SocketName> name = name_of(place);
  if (!name.ok()) return name.status();
  FileDescriptor socket = new_socket();
  if (!socket.valid()) return failed("no Unix socket");
  if (::connect(socket.number(), name->generic(), name->size) == 0) {
    return std::optional(std::move(socket));
  }
  if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) {
    return std::optional<FileDescriptor>();
  }
  return failed("the peer cannot be met at a Unix socket");
}

absl::StatusOr<std::optional<FileDescriptor>> accept_at(const FileDescriptor& listener) {
  FileDescriptor socket(
      ::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.valid()) return std::optional(std::move(socket));
  if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) {
    return std::optional<FileDescriptor>();
  }
  return failed("no Unix socket for the peer");
}

absl::Status ask_for_senders(const FileDescriptor& socket) {
  const int on = 1;
  if (::setsockopt(socket.number(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0) {
    return absl::OkStatus();
  }
  return failed("the system does not say who sends");
}

absl::Status send_signed(const FileDescriptor& socket, absl::string_view bytes) {
  const ucred self{::getpid(), ::geteuid(), ::getegid()};
  Control control{};
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_CREDENTIALS;
  header->cmsg_len = CMSG_LEN(sizeof self);
  std::memcpy(CMSG_DATA(header), &self, sizeof self);
  // A few short messages always have room.
  if (::sendmsg(socket.number(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    return says_closed(errno) ? broken_off() : failed("nothing can be said to the peer");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<SignedMessage>> receive_signed(const FileDescriptor& socket) {
  SignedMessage received;
  received.bytes.resize(kMaxSignedMessageBytes);
  Control control{};
  iovec data{received.bytes.data(), received.bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control;
  const ssize_t size = ::recvmsg(socket.number(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) {
    if (errno == EAGAIN || errno == EINTR) return std::optional<SignedMessage>();
    return says_closed(errno) ? broken_off() : failed("nothing is heard of the peer");
  }
  if (size == 0) return broken_off();
  const std::optional<ucred> sender = sender_of(message);
  if ((message.msg_flags & MSG_TRUNC) != 0 || !sender.has_value()) {
    return absl::UnavailableError("a greeting that is too long, or has no sender");
  }
  received.bytes.resize(static_cast<std::size_t>(size));
  received.sender = *sender;
  return std::optional(std::move(received));
}

}  // namespace sinew::internal
