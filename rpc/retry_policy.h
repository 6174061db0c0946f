#pragma once

#include <chrono>

namespace sinew {

/// Where a call is repeated whose worker is lost.
enum class RetryAt {
  /// Nowhere: a Peer is one incarnation of a worker, and that one is gone.
  kSameWorker,
  /// At the next worker of that name, once it is there. What the lost one kept it does not know.
  kNextOfItsName,
};

/// How calls are repeated that failed: see Peer::retrying().
struct RetryPolicy {
  /// Of one call, the first one included; at least 1.
  int max_attempts = 5;
  /// Before the second attempt; positive. Each further pause is `multiplier` times as long, at
  /// least 1, up to `longest_pause`. Each is cut by a random part, a half at most, so that those
  /// who failed together do not come back together.
  std::chrono::nanoseconds first_pause = std::chrono::milliseconds(50);
  std::chrono::nanoseconds longest_pause = std::chrono::seconds(5);
  double multiplier = 2;
  RetryAt retry_at = RetryAt::kSameWorker;
};

namespace internal {

/// Throws kInvalidArgument, which names the field that makes no sense.
const RetryPolicy& checked(const RetryPolicy& policy);

}  // namespace internal
}  // namespace sinew
