#pragma once

#include <string>

#include "grpcpp/security/auth_context.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

/// What gRPC knows about the other end of a call. `context` may be null.
AuthenticatedPeer peer_identity(const grpc::AuthContext* context, const std::string& address);

/// A text that two streams share only if they come over the same network connection from the same
/// peer.
std::string stream_origin(const grpc::AuthContext* context, const std::string& address);

}  // namespace sinew::internal
