#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal::etcd {

/// What a server's name stands for, looked up as the system does: gRPC's own resolver asks for
/// addresses of IPv6 that /etc/hosts does not have, and waits longer for that than a call may take.
/// By a thread of its own, since it blocks. Thread-safe.
class HostLookup {
 public:
  using Addresses = absl::StatusOr<std::vector<std::string>>;

  /// A literal needs no thread.
  static std::shared_ptr<HostLookup> start(const std::string& endpoint);
  /// nullopt: not yet. Addresses with the port, of one kind: `prefers_ipv6` where there are both.
  std::optional<Addresses> result(bool prefers_ipv6) const;

 private:
  void set(Addresses addresses);

  mutable Mutex mutex_;
  std::optional<Addresses> addresses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal::etcd
