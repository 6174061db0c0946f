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
  /// `in_all` 0: three quarters of the file descriptors that the process may have; the rest is for
  /// its own connections and its user's files. One origin gets half of them.
  explicit OpenSockets(std::size_t in_all);

  /// False when there is no room for one more: it is not counted then.
  bool admit(const FileDescriptor& socket, const std::string& origin);

  std::size_t in_all() const { return in_all_; }
  std::size_t per_origin() const { return per_origin_; }

 private:
  struct Socket {
    int number = -1;
    std::uint64_t cookie = 0;
  };
  /// Forgets those of one origin that are gone.
  void sweep(std::vector<Socket>& sockets);

  const std::size_t in_all_;
  const std::size_t per_origin_;
  std::size_t count_ = 0;
  absl::flat_hash_map<std::string, std::vector<Socket>> by_origin_;
};

}  // namespace sinew::internal
