#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/planes/device_plane.h"
#include "sinew/rpc/planes/nccl/nccl_api.h"

namespace sinew::internal {

struct NcclPlaneOptions {
  WorkerInfo self;
  std::shared_ptr<NcclApi> nccl;
  std::shared_ptr<DeviceApi> device;
  /// See DevicePlaneContext::send. Runs on any thread; must not block, nor call stop().
  std::function<void(const WorkerInfo& peer, std::string message, std::function<void()> on_end)>
      send;
  /// Whether `peer` has said that it has such a plane; null: every peer has. Must not block.
  std::function<bool(const WorkerInfo& peer)> peer_has_plane;
  /// Takes lines for the log; null: none are written.
  std::function<void(const std::string& text)> log;

  /// For a transfer, from the moment when both ends are ready, as far as an end knows; and again
  /// from the moment when it has its place on the device.
  std::chrono::nanoseconds transfer_timeout = std::chrono::seconds(30);
  /// So much more for each byte: 100 MB/s.
  std::chrono::nanoseconds time_per_byte = std::chrono::nanoseconds(10);
  /// For the sender's device to compute what is offered, and again for the receiver to accept it
  /// and for its device to be through with the memory.
  std::chrono::nanoseconds ready_timeout = std::chrono::minutes(10);
  /// For a communicator to be there.
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(20);
  /// For a peer to answer a retraction, and for ncclCommAbort. A peer that exceeds it is given up.
  std::chrono::nanoseconds abort_timeout = std::chrono::seconds(5);
  /// After a failure a link is out of use for so long; twice as long after the next one, up to
  /// max_retry_delay.
  std::chrono::nanoseconds first_retry_delay = std::chrono::seconds(1);
  std::chrono::nanoseconds max_retry_delay = std::chrono::seconds(60);
  /// Between two looks at what the device has done.
  std::chrono::nanoseconds poll_interval = std::chrono::microseconds(100);
  /// How many transfers each device runs at once, as sender and as receiver together; a
  /// communicator that is being opened counts as one. NCCL wants kernels of several communicators
  /// on a device launched in the same order everywhere, which the plane cannot ensure, so it is
  /// one.
  int max_active_transfers = 1;
  /// See NcclApi::init_rank.
  int max_ctas = 0;
  /// Communicators to one peer that do not come about in a row, before it is not tried again: each
  /// leaves a thread of NCCL at the worker that made its id.
  int max_failed_openings = 8;
};

struct NcclCounters {
  std::int64_t transfers_sent = 0;
  std::int64_t transfers_received = 0;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_received = 0;
  /// Transfers that ended with an error other than kCancelled.
  std::int64_t failures = 0;
  /// Communicators that were aborted, be it for a failure or in stop().
  std::int64_t aborts = 0;
  /// Threads that have not come back from NCCL in time, and not since.
  std::int64_t threads_left_behind = 0;
  /// Peers that broke a rule.
  std::int64_t protocol_errors = 0;
  /// These are there now.
  std::int64_t communicators = 0;
  std::int64_t transfers = 0;
  std::int64_t aborts_under_way = 0;
};

/// The plane over NCCL. How it works: docs/gpu.md.
///
/// All OnEnd run on one thread of the plane, which must not call stop(). Once stop() has been
/// called, offers and accepts are dropped and their OnEnd are destroyed unrun. The destructor
/// stops.
class NcclPlane : public DevicePlane {
 public:
  virtual NcclCounters counters() const = 0;
};

std::unique_ptr<NcclPlane> make_nccl_plane(NcclPlaneOptions options);

}  // namespace sinew::internal
