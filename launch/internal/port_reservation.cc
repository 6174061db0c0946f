#include "sinew/launch/internal/port_reservation.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

constexpr int kFirstPort = 1024;
constexpr int kLastPort = 65535;
// Those below are likelier to belong to a service that is started later.
constexpr int kFirstOfChoice = 20000;
constexpr int kMostTries = 10000;

struct Range {
  int first;
  int last;
};

/// The larger part of what the system does not give away itself.
Range choice() {
  Range given{32768, 60999};
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  if (Range read{}; file >> read.first >> read.last) given = read;
  const Range below{given.first > kFirstOfChoice ? kFirstOfChoice : kFirstPort, given.first - 1};
  const Range above{std::max(given.last + 1, kFirstPort), kLastPort};
  const Range best = below.last - below.first >= above.last - above.first ? below : above;
  return best.last - best.first < 100 ? Range{kFirstPort, kLastPort} : best;
}

/// Invalid if another reservation has it.
FileDescriptor take_name(int port) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = absl::StrCat("sinew-port-", port);
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return socket;
  const bool bound = ::bind(socket.number(), reinterpret_cast<sockaddr*>(&name), size) == 0;
  return bound ? std::move(socket) : FileDescriptor();
}

bool can_bind(const sockaddr* address, socklen_t size) {
  FileDescriptor socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // A host without this family cannot have the port in use there.
  if (!socket.valid()) return errno == EAFNOSUPPORT;
  const int only = 1;
  if (address->sa_family == AF_INET6) {
    ::setsockopt(socket.number(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  }
  return ::bind(socket.number(), address, size) == 0 || errno == EADDRNOTAVAIL;
}

bool is_free(int port) {
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<std::uint16_t>(port));
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = four.sin_port;
  return can_bind(reinterpret_cast<sockaddr*>(&four), sizeof four) &&
         can_bind(reinterpret_cast<sockaddr*>(&six), sizeof six);
}

}  // namespace

absl::StatusOr<PortReservation> PortReservation::make() {
  std::random_device random;
  const Range range = choice();
  std::uniform_int_distribution<int> any(range.first, range.last);
  for (int attempt = 0; attempt < kMostTries; ++attempt) {
    const int port = any(random);
    FileDescriptor name = take_name(port);
    if (name.valid() && is_free(port)) return PortReservation(port, std::move(name));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("found no free port between ", range.first, " and ", range.last));
}

}  // namespace sinew::internal
