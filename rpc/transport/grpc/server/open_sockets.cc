#include "sinew/rpc/transport/grpc/server/open_sockets.h"

#include <sys/socket.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/host_limits.h"
#include "sinew/rpc/transport/origin.h"

namespace sinew::internal {
namespace {

// To look through them all must not take long.
constexpr std::size_t kMostSockets = std::size_t{1} << 14;

// They need a descriptor each.
constexpr std::size_t kMostToBeTold = 8;

std::optional<std::uint64_t> cookie_of(int socket) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (::getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return std::nullopt;
  return cookie;
}

}  // namespace

std::size_t OpenSockets::in_all() const {
  const std::uint64_t limit = file_limit().value_or(std::numeric_limits<std::uint64_t>::max());
  const auto own = static_cast<std::size_t>(std::min<std::uint64_t>(limit / 4 * 3, kMostSockets));
  return std::max<std::size_t>(configured_ == 0 ? own : configured_, 2);
}

std::string OpenSockets::no_room_text() const {
  const std::optional<std::uint64_t> limit = file_limit();
  return absl::StrCat(
      "this worker has room for ", in_all(), " connections, and for ", in_all() / 2,
      " from one address",
      configured_ == 0 && limit.has_value() ? absl::StrCat(": its RLIMIT_NOFILE is ", *limit) : "");
}

OpenSockets::Room OpenSockets::admit(const FileDescriptor& socket, const std::string& origin) {
  const std::optional<std::uint64_t> cookie = cookie_of(socket.number());
  // A system without cookies: what gRPC has can only be taken as it is.
  if (!cookie.has_value()) return Room::kForOneMore;
  if (has_room_for(origin)) {
    by_origin_[origin].push_back({socket.number(), *cookie});
    ++count_;
    return Room::kForOneMore;
  }
  const std::size_t most = std::min(kMostToBeTold, in_all() / 4);
  if (to_be_told_.size() >= most) sweep(to_be_told_);
  if (to_be_told_.size() >= most) return Room::kNone;
  to_be_told_.push_back({socket.number(), *cookie});
  return Room::kToBeTold;
}

bool OpenSockets::has_room_for(const std::string& origin) {
  const std::size_t all = in_all();
  const std::size_t most = origin == kOwnUser ? all : all / 2;
  if (const auto own = by_origin_.find(origin);
      own != by_origin_.end() && own->second.size() >= most) {
    count_ -= sweep(own->second);
    if (own->second.size() >= most) return false;
  }
  if (count_ < all) return true;
  for (auto each = by_origin_.begin(); each != by_origin_.end();) {
    count_ -= sweep(each->second);
    // Erasing does not move the others.
    if (each->second.empty()) {
      by_origin_.erase(each++);
    } else {
      ++each;
    }
  }
  return count_ < all;
}

std::size_t OpenSockets::sweep(Sockets& sockets) {
  const auto gone = std::remove_if(sockets.begin(), sockets.end(), [](const Socket& each) {
    return cookie_of(each.number) != each.cookie;
  });
  const auto number = static_cast<std::size_t>(sockets.end() - gone);
  sockets.erase(gone, sockets.end());
  return number;
}

}  // namespace sinew::internal
