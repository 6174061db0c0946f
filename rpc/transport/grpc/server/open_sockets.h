#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sinew/rpc/base/internal/file_descriptor.h"

namespace sinew::internal {

/// Counts the sockets of others that gRPC owns by now, in all and by origin (see origin.h). gRPC
/// does not tell when it closes one; the system does, when it is asked for a socket's cookie, which
/// no other one gets. Not thread-safe.
class OpenSockets {
 public:
  /// `in_all` 0: three quarters of the file descriptors that the process may have at the moment;
  /// the rest is for its own connections and its user's files. One origin gets half of them.
  explicit OpenSockets(std::size_t in_all) : configured_(in_all) {}

  enum class Room {
    kForOneMore,
    /// To be told that there is none, which takes a moment.
    kToBeTold,
    kNone,
  };
  /// The socket is counted unless there is none.
  Room admit(const FileDescriptor& socket, const std::string& origin);

  std::size_t in_all() const;
  /// Why there is no room, for the log and for whom it concerns.
  std::string no_room_text() const;

 private:
  struct Socket {
    int number = -1;
    std::uint64_t cookie = 0;
  };
  using Sockets = std::vector<Socket>;

  bool has_room_for(const std::string& origin);
  /// Forgets those of `sockets` that are gone, and returns how many that are.
  static std::size_t sweep(Sockets& sockets);

  const std::size_t configured_;
  std::size_t count_ = 0;
  absl::flat_hash_map<std::string, Sockets> by_origin_;
  Sockets to_be_told_;
};

}  // namespace sinew::internal
