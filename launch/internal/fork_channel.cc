#include "sinew/launch/internal/fork_channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace sinew::internal {
namespace {

// Variables of a process's own are a few dozen bytes, an obstacle is a line.
constexpr std::size_t kMostTextBytes = 4096;
constexpr std::size_t kMostDescriptors = 3;

struct Head {
  ForkMessage::Kind kind;
  std::int32_t number;
  std::int32_t detail;
};

union ControlBytes {
  cmsghdr alignment;
  std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> bytes;
};

std::vector<FileDescriptor> take_descriptors(msghdr& packet) {
  std::vector<FileDescriptor> result;
  for (cmsghdr* part = CMSG_FIRSTHDR(&packet); part != nullptr; part = CMSG_NXTHDR(&packet, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + i * sizeof number, sizeof number);
      result.emplace_back(number);
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<std::pair<FileDescriptor, FileDescriptor>> ForkChannel::make_sockets() {
  int ends[2];
  // Packets, so that each message comes as a whole, with its descriptors.
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "cannot make a pair of sockets");
  }
  return std::make_pair(FileDescriptor(ends[0]), FileDescriptor(ends[1]));
}

absl::Status ForkChannel::send(const ForkMessage& message) const {
  const std::size_t descriptors = message.descriptors.size();
  if (descriptors > kMostDescriptors) {
    return absl::InternalError("a message to the fork server carries too many descriptors");
  }
  Head head{message.kind, message.number, message.detail};
  iovec parts[] = {{&head, sizeof head},
                   {const_cast<char*>(message.text.data()), message.text.size()}};
  msghdr packet{};
  packet.msg_iov = parts;
  packet.msg_iovlen = 2;
  ControlBytes control{};
  if (descriptors > 0) {
    const std::size_t size = descriptors * sizeof(int);
    packet.msg_control = control.bytes.data();
    packet.msg_controllen = CMSG_SPACE(size);
    cmsghdr* const rights = CMSG_FIRSTHDR(&packet);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(size);
    std::array<int, kMostDescriptors> numbers{};
    for (std::size_t i = 0; i < descriptors; ++i) numbers[i] = message.descriptors[i].number();
    std::memcpy(CMSG_DATA(rights), numbers.data(), size);
  }
  while (::sendmsg(socket_.number(), &packet, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, "cannot speak with the fork server");
  }
  return absl::OkStatus();
}

absl::StatusOr<ForkMessage> ForkChannel::receive(Wait wait) const {
  Head head{};
  std::string text(kMostTextBytes, '\0');
  iovec parts[] = {{&head, sizeof head}, {text.data(), text.size()}};
  ControlBytes control{};
  msghdr packet{};
  packet.msg_iov = parts;
  packet.msg_iovlen = 2;
  packet.msg_control = control.bytes.data();
  packet.msg_controllen = control.bytes.size();
  const int flags = MSG_CMSG_CLOEXEC | (wait == Wait::kNo ? MSG_DONTWAIT : 0);
  ssize_t size = 0;
  do {
    size = ::recvmsg(socket_.number(), &packet, flags);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return absl::DeadlineExceededError("there is no message");
  }
  if (size < 0) return absl::UnavailableError(std::strerror(errno));
  if (static_cast<std::size_t>(size) < sizeof head) {
    return absl::UnavailableError("the other end is gone");
  }
  text.resize(static_cast<std::size_t>(size) - sizeof head);
  return ForkMessage{head.kind, head.number, head.detail, std::move(text),
                     take_descriptors(packet)};
}

void ForkChannel::end_sending() const { ::shutdown(socket_.number(), SHUT_WR); }

}  // namespace sinew::internal
