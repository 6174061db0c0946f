#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "sinew/rpc/transport/grpc/grpc_transport.h"

namespace sinew::internal {

/// Data that the other end has not acknowledged for so long ends a connection (gRPC sets that for
/// sockets that it makes itself).
inline constexpr std::chrono::milliseconds kGiveUpAfter = std::chrono::seconds(30);

/// Settings that both ends of a connection have in common.
std::vector<std::pair<std::string, int>> common_arguments();

/// What a channel is to carry: all that its ends send each other, or small things only, as long as
/// a plane takes the rest.
enum class Carries { kEverything, kLittle };

/// A channel that shares no TCP connection with another one. It does not connect yet. kLittle
/// matters for local sockets alone: it saves gRPC's probes of what the connection could carry.
/// kInvalidArgument for an address that is none; kPermissionDenied when the credentials do not
/// allow it; the credentials' own errors.
absl::StatusOr<std::shared_ptr<grpc::Channel>> make_channel(const std::string& address,
                                                            const GrpcTransportOptions& options,
                                                            const std::string& expected_name,
                                                            Carries carries);

/// Whether such a transport listens on and looks for local sockets, see local_socket.h.
bool uses_local_sockets(const GrpcTransportOptions& options);

/// kPermissionDenied when insecure credentials are to be used beyond this machine. `what` begins
/// the text.
absl::Status check_reach(const Credentials& credentials, bool loopback, const std::string& what);

}  // namespace sinew::internal
