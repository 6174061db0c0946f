#include "sinew/rpc/transport/grpc/server/open_sockets.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>

#include "sinew/rpc/transport/grpc/server/origin.h"

namespace sinew::internal {
namespace {

// To look through them all must not take long.
constexpr std::size_t kMostSockets = std::size_t{1} << 14;

std::size_t default_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostSockets;
  return std::min<std::size_t>(limit.rlim_cur / 4 * 3, kMostSockets);
}

std::optional<std::uint64_t> cookie_of(int socket) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (::getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return std::nullopt;
  return cookie;
}

}  // namespace

OpenSockets::OpenSockets(std::size_t in_all)
    : in_all_(std::max<std::size_t>(in_all == 0 ? default_limit() : in_all, 2)),
      per_origin_(in_all_ / 2) {}

bool OpenSockets::admit(const FileDescriptor& socket, const std::string& origin) {
  const std::optional<std::uint64_t> cookie = cookie_of(socket.number());
  // A system without cookies: what gRPC has can only be taken as it is.
  if (!cookie.has_value()) return true;
  const std::size_t most = origin == kOwnUser ? in_all_ : per_origin_;
  if (std::vector<Socket>& own = by_origin_[origin]; own.size() >= most) {
    sweep(own);
    if (own.size() >= most) return false;
  }
  if (count_ >= in_all_) {
    for (auto each = by_origin_.begin(); each != by_origin_.end();) {
      sweep(each->second);
      // Erasing does not move the others.
      if (each->second.empty() && each->first != origin) {
        by_origin_.erase(each++);
      } else {
        ++each;
      }
    }
    if (count_ >= in_all_) return false;
  }
  by_origin_[origin].push_back({socket.number(), *cookie});
  ++count_;
  return true;
}

void OpenSockets::sweep(std::vector<Socket>& sockets) {
  const auto gone = std::remove_if(sockets.begin(), sockets.end(), [](const Socket& each) {
    return cookie_of(each.number) != each.cookie;
  });
  count_ -= static_cast<std::size_t>(sockets.end() - gone);
  sockets.erase(gone, sockets.end());
}

}  // namespace sinew::internal
