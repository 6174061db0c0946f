#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/receive_pool.h"
#include "sinew/rpc/transport/frame.h"
#include "sinew/rpc/transport/grpc/connection/packet.h"

namespace sinew::internal {

/// Puts chunks together, and frames with their tickets. BulkSender says why its memory is bounded:
/// chunks of transfers without a ticket may hold kUnannouncedBytes, and the caller announces only
/// frames that its handler has admitted. Thread-safe.
class BulkReceiver {
 public:
  struct Completed {
    Lane lane = Lane::kCalls;
    /// With `lost` nothing but its header.
    Frame frame;
    /// Of the whole frame.
    std::uint64_t size_bytes = 0;
    std::size_t payloads = 0;
    /// Not OK: there was no room for it.
    absl::Status lost;
  };

  struct ToFetch {
    std::uint64_t transfer = 0;
    std::uint64_t size_bytes = 0;
    std::uint32_t plane = 0;
    std::string location;
    /// Its frame is lost: lost() is to follow.
    bool is_lost = false;
  };

  struct Announced {
    /// Set when all transfers of the frame had arrived before.
    std::optional<Completed> completed;
    /// Transfers to grant now.
    std::vector<std::uint64_t> granted;
    /// Transfers that come only if the caller fetches them: fetched(), not_fetched() or lost() must
    /// follow.
    std::vector<ToFetch> to_fetch;
  };

  /// `lost`: not OK where there is no room for the frame. kInvalidArgument when the tickets
  /// contradict what came before.
  absl::StatusOr<Announced> announce(Lane lane, PacketFrame frame,
                                     absl::Status lost = absl::OkStatus());

  /// Frames that these chunks complete, in order. kInvalidArgument for chunks that overlap, leave
  /// gaps, contradict their ticket or come in too large a number before it. A frame for which there
  /// is no memory completes as lost, when all of it has arrived. By one thread at a time.
  absl::StatusOr<std::vector<Completed>> receive(std::vector<Chunk> chunks);

  /// A transfer has been fetched. The frame, if that completes it. kCancelled after clear().
  absl::StatusOr<std::optional<Completed>> fetched(std::uint64_t transfer, absl::Cord bytes);
  /// There is no room for it: its frame is lost. Otherwise as fetched().
  absl::StatusOr<std::optional<Completed>> lost(std::uint64_t transfer);
  /// It could not be: from here on it may come in chunks, and the caller grants it. False after
  /// clear().
  bool not_fetched(std::uint64_t transfer);

  /// Bytes of transfers that no ticket has announced yet.
  std::size_t unannounced_bytes() const;

  /// Drops all there is.
  void clear();

 private:
  struct Waiting {
    Completed whole;
    std::size_t missing = 0;
  };
  struct Assembly {
    std::uint64_t size_bytes = 0;
    std::uint64_t received_bytes = 0;
    /// What has arrived, unless there is a block: that of a payload which is not small, from the
    /// first chunk after its ticket.
    absl::Cord received;
    std::shared_ptr<ReceiveBlock> block;
    /// 0 as long as no ticket came.
    std::uint64_t waiting = 0;
    /// Index of the payload; -1 for the envelope.
    std::ptrdiff_t place = 0;
    /// It is being fetched, so no chunks of it may come.
    bool located = false;
  };

  absl::Status add_ticket_locked(const PayloadTicket& ticket, std::uint64_t number,
                                 Waiting& waiting, std::ptrdiff_t place, Announced& announced)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Assembly*> find_assembly_locked(const Chunk& chunk)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::optional<Completed>> receive_one(Chunk chunk);
  std::shared_ptr<ReceiveBlock> block_locked(Assembly& assembly)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool is_lost_locked(const Assembly& assembly) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Completed> complete_locked(std::uint64_t transfer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status fail_locked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void place(absl::Cord bytes, std::ptrdiff_t place, Completed& whole);
  static void lose(Completed& whole, absl::Status why);

  mutable Mutex mutex_;
  absl::flat_hash_map<std::uint64_t, Assembly> assemblies_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_waiting_ ABSL_GUARDED_BY(mutex_) = 1;
  std::size_t unannounced_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  /// Transfers that were complete when their ticket came and are not granted yet.
  std::vector<std::uint64_t> arrived_ ABSL_GUARDED_BY(mutex_);
  std::size_t arrived_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  /// Set for good by the first violation, which leaves the tables half changed.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sinew::internal
