#include "sinew/rpc/transport/grpc/connection/channel.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/create_channel_posix.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "sinew/rpc/transport/grpc/connection/packet.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"
#include "sinew/rpc/transport/grpc/local/local_socket.h"

namespace sinew::internal {
namespace {

// Between both ends of a connection, heartbeats of the layer above find a dead peer first; this
// ends sockets that are not in use any more, and unacknowledged data (gRPC sets TCP_USER_TIMEOUT to
// kGiveUpAfter).
constexpr int kKeepaliveTimeMs = 60 * 1000;
constexpr int kKeepaliveTimeoutMs = static_cast<int>(kGiveUpAfter.count());

constexpr int kLargestFrameBytes = 4 << 20;
// What may be on its way on a stream before its receiver has asked for it. gRPC finds a value by
// itself, but starts with 64 KiB and falls back when little has arrived for a while.
constexpr int kLookaheadBytes = 16 << 20;
// What a socket is read into: grows with what arrives, so that an idle connection holds little.
constexpr int kFirstReadBytes = 64 << 10;
constexpr int kLargestReadBytes = 1 << 20;

}  // namespace

std::vector<std::pair<std::string, int>> common_arguments() {
  return {
      // Large frames and reads are what makes bulk fast (measured).
      {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kLargestFrameBytes},
      {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes},
      {GRPC_ARG_TCP_READ_CHUNK_SIZE, kFirstReadBytes},
      {GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kLargestReadBytes},
      {GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs},
      {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kKeepaliveTimeMs / 2},
      // gRPC inflates before it checks its limits, so what is compressed is refused, not inflated.
      {GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE},
      {GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0},
      {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
      {GRPC_ARG_ENABLE_CHANNELZ, 0},
      {GRPC_ARG_ENABLE_CENSUS, 0},
  };
}

bool uses_local_sockets(const GrpcTransportOptions& options) {
  // TLS would be spoken with the other end's host, which a Unix socket does not have.
  return options.tuning.local_sockets && !options.credentials.uses_tls();
}

absl::Status check_reach(const Credentials& credentials, bool loopback, const std::string& what) {
  if (loopback || !credentials.loopback_only()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      what,
      " is not a loopback address, and Credentials::insecure() stays on this machine: use "
      "Credentials::mutual_tls() or Credentials::tls(), or, on a network where everybody is "
      "trusted, Credentials::insecure_on_any_network()"));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> make_channel(const std::string& address,
                                                            const GrpcTransportOptions& options,
                                                            const std::string& expected_name,
                                                            Carries carries) {
  const absl::StatusOr<HostPort> target = parse_host_port(address);
  if (!target.ok()) return target.status();
  if (target->port == 0) {
    return absl::InvalidArgumentError(absl::StrCat("\"", address, "\" has no port to connect to"));
  }
  absl::Status allowed = check_reach(options.credentials, target->is_loopback(), address);
  if (!allowed.ok()) return allowed;
  auto credentials = options.credentials.channel_credentials();
  if (!credentials.ok()) return credentials.status();

  grpc::ChannelArguments arguments;
  for (const auto& [name, value] : common_arguments()) arguments.SetInt(name, value);
  arguments.SetInt(GRPC_ARG_ENABLE_DEADLINE_CHECKS, 0);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMaxPacketBytes));
  if (uses_local_sockets(options)) {
    if (FileDescriptor socket = connect_locally(*target); socket.valid()) {
      arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, address);
      if (carries == Carries::kLittle) arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
      return grpc::CreateCustomInsecureChannelFromFd(address, socket.release(), arguments);
    }
  }
  // What a channel that connects by itself needs to know.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  if (!expected_name.empty()) arguments.SetSslTargetNameOverride(expected_name);
  const absl::string_view scheme = target->is_ipv4()   ? "ipv4:"
                                   : target->is_ipv6() ? "ipv6:"
                                                       : "dns:///";
  return grpc::CreateCustomChannel(absl::StrCat(scheme, join_host_port(target->host, target->port)),
                                   *credentials, arguments);
}

}  // namespace sinew::internal
