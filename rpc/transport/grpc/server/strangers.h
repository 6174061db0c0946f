#pragma once

#include <memory>

#include "sinew/rpc/base/rate_limited_log.h"
#include "sinew/rpc/transport/grpc/grpc_transport.h"
#include "sinew/rpc/transport/grpc/server/turned_away.h"
#include "sinew/rpc/transport/grpc/server/turns.h"
#include "sinew/rpc/transport/quota.h"

namespace sinew::internal {

/// What those may use of a worker who have not shown yet that they are workers, or never will.
struct Strangers {
  explicit Strangers(const GrpcTransportOptions& options);

  /// Connections on their way up.
  const std::shared_ptr<Quota> handshakes;
  /// Calls of clients, from their arrival until their result has been taken.
  const std::shared_ptr<Quota> calls;
  /// Health checks and the like.
  const std::shared_ptr<Quota> inquiries;
  /// Bytes of requests that are here and of results that have not been taken.
  const std::shared_ptr<Quota> bytes;
  /// Hellos and requests that are being received.
  const std::shared_ptr<Turns> receiving;
  TurnedAway turned_away;
  /// Tells of those who were refused.
  RateLimitedLog refusals;
};

}  // namespace sinew::internal
