#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/planes/same_host/copy_team.h"
#include "sinew/rpc/planes/same_host/greeting.h"
#include "sinew/rpc/planes/same_host/location_seal.h"
#include "sinew/rpc/planes/same_host/peer_process.h"

namespace sinew::internal {

/// What the process at the other end of a connection has located for this one. Thread-safe.
class RemoteMemory {
 public:
  RemoteMemory(std::shared_ptr<const PeerProcess> process, MemoryAccess access,
               std::shared_ptr<CopyTeam> team);

  /// Whether it can be read from at all: kUnavailable with the system's reason, kNotFound when the
  /// peer has closed.
  absl::Status check() const;
  /// Copies what is located there. As check(), or kInvalidArgument for what its owner has not
  /// located with that size. Not OK: what is at `to` is undefined.
  absl::Status fetch(absl::string_view location, char* to, std::size_t size_bytes);

 private:
  absl::Status read(std::uint64_t from, char* to, std::size_t size_bytes) const;
  absl::Status check_owner() const;

  const std::shared_ptr<const PeerProcess> process_;
  const std::string word_;
  const std::uint64_t word_address_;
  LocationSeal seal_;
  const std::shared_ptr<CopyTeam> team_;
};

}  // namespace sinew::internal
