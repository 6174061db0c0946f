#pragma once

#include <chrono>
#include <optional>

#include "sinew/rpc/cancellation.h"
#include "sinew/rpc/retry_policy.h"

namespace sinew {

/// A call without a limit of time: it ends when the callee answers or is lost.
inline constexpr std::chrono::nanoseconds kNoTimeout = std::chrono::nanoseconds::max();

/// How one call is made. Everything is optional.
struct CallOptions {
  /// Time that the call may take, from its start to its result. Unset: the worker's default (60 s).
  /// kNoTimeout: no limit. Rounded up to whole microseconds; zero and negative values are refused
  /// with kInvalidArgument. Within a handler the call is also bound by what is left of the time of
  /// the call that is being served.
  std::optional<std::chrono::nanoseconds> timeout = {};
  /// Cancels the call when its source is cancelled; see CancellationSource.
  CancellationToken cancellation = {};
  /// Whether, and how, the call is repeated when it fails; see Peer::retrying(). Unset: it is not.
  std::optional<RetryPolicy> retry = {};
};

}  // namespace sinew
