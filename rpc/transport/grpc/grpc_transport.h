#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sinew/rpc/planes/pull_plane.h"
#include "sinew/rpc/transport/credentials.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

/// Sizes that trade latency, throughput and memory for each other. The defaults were measured; both
/// ends may differ.
struct GrpcTuning {
  /// A payload that is larger travels on the bulk lane, where it delays no call.
  std::size_t bulk_threshold_bytes = std::size_t{64} << 10;
  /// Frames share a packet until it has this size.
  std::size_t packet_bytes = std::size_t{256} << 10;
  /// Size of the pieces on the bulk lane, at most 4 MiB.
  std::size_t chunk_bytes = std::size_t{1} << 20;
  /// Whether workers of one host and user talk through Unix sockets instead of TCP. Never with TLS.
  bool local_sockets = true;
  /// Whether they fetch large payloads out of each other's memory where the system lets them.
  bool same_host_plane = true;
  /// Largest request that a foreign client may send.
  std::size_t max_unary_bytes = std::size_t{64} << 20;
  /// Foreign calls and streams that one client connection may have open.
  int max_concurrent_streams = 1024;
  /// Calls of foreign clients that are received, served and answered at a time; those from one
  /// address get a quarter. Who calls beyond that gets RESOURCE_EXHAUSTED.
  std::size_t max_unary_calls = 1024;
  /// Bytes of their requests and of results that they have not taken; those from one address get a
  /// quarter, but at least max_unary_bytes and one result.
  std::size_t max_unary_held_bytes = std::size_t{2} << 30;
  /// Time for a request to arrive as a whole, each one where a stream brings several, and for a
  /// result to be taken; up to a quarter more.
  std::chrono::milliseconds unary_transfer_timeout = std::chrono::seconds(60);
  /// Connections that others may have open to this worker; those from one address get half of them.
  /// 0: three quarters of what RLIMIT_NOFILE allows.
  std::size_t max_connections = 0;
  /// How long a thread that waits for the network looks for it at most before it sleeps, where that
  /// pays; 0: not at all.
  std::chrono::nanoseconds max_poll = std::chrono::nanoseconds::max();
  /// How long shutdown() lets calls of foreign clients end before they are cut off.
  std::chrono::milliseconds shutdown_grace = std::chrono::seconds(2);
};

struct GrpcTransportOptions {
  /// "host:port" or "[ipv6]:port"; port 0 takes any free one. The first one is the address that is
  /// advertised; further ones (a rendezvous port) accept the same connections.
  std::vector<std::string> listen = {"127.0.0.1:0"};
  /// Host, or "host:port", that others reach this worker by. Empty: the host of the first listen
  /// address, which must not be a wildcard then unless `advertise_towards` is set.
  std::string advertised;
  /// "host:port" of a machine that all workers reach, such as the master. With a wildcard and no
  /// `advertised`, the local address that routes there is advertised.
  std::string advertise_towards;
  Credentials credentials = Credentials::insecure();
  /// What foreign clients must bring as "authorization: Bearer ..."; empty: nothing.
  std::string client_token;
  Transport::Limits limits;
  GrpcTuning tuning;
  /// Ways for large payloads to travel outside of gRPC, apart from that of `same_host_plane`, which
  /// comes before these. The best first.
  std::vector<std::shared_ptr<PullPlane>> planes;
  /// Told what a user of the transport may want to know; a line each. On any thread.
  std::function<void(const std::string& text)> log = [](const std::string&) {};
};

/// A transport over gRPC: one channel per connection with a stream for each lane and one for bulk
/// payloads. Also serves foreign clients (sinew.proto.Worker/Call), health checks and reflection.
std::unique_ptr<Transport> make_grpc_transport(GrpcTransportOptions options);

}  // namespace sinew::internal
