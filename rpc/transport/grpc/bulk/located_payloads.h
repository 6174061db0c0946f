#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/cord.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/plane_set.h"

namespace sinew::internal {

/// Payloads that the other end fetches by itself: kept until it says that it is done with them.
/// Thread-safe.
class LocatedPayloads {
 public:
  /// `planes`, which outlives this, is told when it need not serve a payload any more.
  explicit LocatedPayloads(PlaneSet& planes) : planes_(planes) {}

  struct Payload {
    absl::Cord bytes;
    PlaneSet::Location location;
  };

  /// False, keeping nothing, after close().
  bool add(std::uint64_t transfer, Payload payload);
  /// The other end will not fetch it: hands it out. Nothing when there is no such transfer.
  std::optional<Payload> take(std::uint64_t transfer);
  /// The other end has fetched these: lets go of them. False when one is not here, unless close()
  /// came first.
  bool release(const std::vector<std::uint64_t>& transfers);
  /// Lets go of all. The memory must be out of the other end's reach by now.
  void close();
  /// Of all that are kept.
  std::uint64_t kept_bytes() const { return kept_bytes_.load(std::memory_order_relaxed); }

 private:
  PlaneSet& planes_;
  std::atomic<std::uint64_t> kept_bytes_{0};
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<std::uint64_t, Payload> payloads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
