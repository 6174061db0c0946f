#pragma once

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "sinew/rpc/planes/pull_plane.h"

namespace sinew::internal {

struct UcxOptions {
  /// Network devices other than loopback are left alone, unless UCX_NET_DEVICES names some.
  bool loopback_only = false;
  /// How long the peer may take for an answer; data have a second more per 16 MiB.
  std::chrono::nanoseconds timeout = std::chrono::seconds(10);
};

/// Fetches by UCX: RDMA, TCP, or shared memory, as UCX and its environment variables (UCX_TLS,
/// UCX_NET_DEVICES) choose. kUnimplemented when this library was built without UCX, otherwise an
/// error with UCX's own text when that does not start.
///
/// The reader asks the owner by an active message, and the owner answers with the data, which UCX
/// moves by its rendezvous protocol: without a copy in between where the hardware can. Not by
/// one-sided reads: UCX emulates those over TCP and shared memory, and then serves any address to
/// any client, which ends in a fault when it is not mapped. Here the owner answers only for what is
/// located at that moment, and only to clients that know a secret which it told its peer over the
/// connection.
///
/// The proof: the owner answers a challenge with its digest, by UCX. The data of a fetch count only
/// when the owner says after them that they were still located once all had left: so memory that
/// was released is never taken for what it was.
///
/// Throws RpcError (kResourceExhausted) where no thread starts.
absl::StatusOr<std::shared_ptr<PullPlane>> make_ucx_plane(const UcxOptions& options);

}  // namespace sinew::internal
