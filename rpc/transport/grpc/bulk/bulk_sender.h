#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/grpc/connection/lane_stream.h"
#include "sinew/rpc/transport/grpc/connection/packet.h"

namespace sinew::internal {

/// Writes the bulk lane: transfers cut into chunks, frame by frame in turn so that a small one does
/// not wait for the end of a huge one, and the grants for what comes the other way.
///
/// Why grants. A ticket and its chunks travel on different streams, and all streams are always
/// read, so chunks may arrive before it is known whether there is room for them: the ticket is
/// behind others, or its receiver's thread has something else to do. If the receiver waited with
/// reading them, announced transfers behind them could not end, and both ends could deadlock. So it
/// is the sender that holds back: it sends at most kUnannouncedBytes of transfers that the receiver
/// has not granted yet, and the receiver grants a transfer when it has read the ticket and
/// ConnectionHandler::on_announced() has admitted the frame. What is granted always moves. The
/// receiver's memory is kUnannouncedBytes and what its handler admits, which it checks against the
/// windows that the layer above keeps.
///
/// Thread-safe.
class BulkSender {
 public:
  explicit BulkSender(std::size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  /// One number and its bytes (not empty) for each transfer of one frame.
  using Transfers = std::vector<std::pair<std::uint64_t, absl::Cord>>;
  /// Numbers for `count` transfers, never 0. Tickets may be sent before or after submit().
  std::uint64_t reserve(std::size_t count);
  void submit(Transfers transfers);
  /// A number of reserve() will not be used.
  void forget(std::uint64_t transfer);

  /// The receiver grants these. kInvalidArgument for one that is not waiting for a grant.
  absl::Status on_granted(const std::vector<std::uint64_t>& transfers);
  /// Queues grants of our own. kResourceExhausted when the other end does not read them.
  absl::Status grant(const std::vector<std::uint64_t>& transfers);

  void open(std::shared_ptr<LaneStream> stream);
  void on_written();
  void close();
  /// Of transfers that have not left.
  std::uint64_t kept_bytes() const { return kept_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Outgoing {
    std::deque<std::pair<std::uint64_t, absl::Cord>> transfers;
    /// Of the first one: bytes that have left.
    std::uint64_t offset = 0;
    /// How much of it leaves at a time.
    std::size_t packet_bytes = 0;
  };
  struct Ledger {
    /// Bytes charged to kUnannouncedBytes.
    std::size_t charged_bytes = 0;
    bool granted = false;
    bool sent = false;
  };

  void start_write_if_idle();
  /// False when closed.
  bool end_write();
  bool take_packet_locked(Packet& packet) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void take_chunks_locked(Packet& packet) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Bytes of the frame's first transfer that may leave now.
  std::size_t allowed_locked(const Outgoing& frame) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void take_chunk_locked(Outgoing& frame, std::size_t bytes, Packet& packet)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::size_t chunk_bytes_;
  std::atomic<std::uint64_t> kept_bytes_{0};
  Mutex mutex_;
  std::shared_ptr<LaneStream> stream_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t next_transfer_ ABSL_GUARDED_BY(mutex_) = 1;
  /// Frames with bytes to send, in turn; those in `blocked_` wait for a grant.
  std::deque<Outgoing> active_ ABSL_GUARDED_BY(mutex_);
  std::deque<Outgoing> blocked_ ABSL_GUARDED_BY(mutex_);
  /// Transfers that are not both sent and granted.
  absl::flat_hash_map<std::uint64_t, Ledger> ledger_ ABSL_GUARDED_BY(mutex_);
  std::size_t unannounced_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::uint64_t> grants_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
