#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "grpcpp/support/byte_buffer.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/flushable.h"
#include "sinew/rpc/transport/grpc/connection/lane_stream.h"
#include "sinew/rpc/transport/grpc/connection/packet.h"
#include "sinew/rpc/transport/grpc/connection/slice_writer.h"

namespace sinew::internal {

/// Writes the frames of one lane: as soon as the stream is idle, together with those that became
/// ready while it was busy. Frames leave in the order in which they were queued. Thread-safe.
class LaneWriter final : public Flushable {
 public:
  explicit LaneWriter(std::size_t packet_bytes) : packet_bytes_(packet_bytes) {}

  /// Queues a frame, which leaves with the next flush(), or when a write that is in flight is done.
  /// Returns the number of queued frames; none, dropping it, after close().
  std::optional<std::size_t> queue(const PacketFrame& frame);
  void flush() override;
  void flush_unless_due() override;
  /// Asks the executor whose task the calling thread runs to flush `self`, which is this writer,
  /// after the short tasks that follow. False when none do.
  bool leave_to_executor(const std::shared_ptr<Flushable>& self);
  /// Messages about planes, which leave at once.
  void send_planes(std::vector<std::string> messages);
  /// Tells the other end that it may let go of a transfer, with the next frame or flush_all().
  /// False when it does not read that.
  bool add_fetched(std::uint64_t transfer);
  /// As flush(), and does not wait for a frame with what was added.
  void flush_all();
  /// `riders`: what the first packet says of frames that have left by another stream.
  void open(std::shared_ptr<LaneStream> stream, WriterStart start, std::uint64_t riders = 0);
  /// Between the two, frames are queued but do not leave. The handler of received frames runs
  /// between them, so that what it answers shares a packet rather than the first answer leaving
  /// alone; it must not block for that reason too.
  void cork();
  /// kPacket: a packet leaves, be it an empty one.
  enum class Uncork { kWhatWaits, kPacket };
  void uncork(Uncork how = Uncork::kWhatWaits);
  /// The write that was in flight is done.
  void on_written();
  /// Drops what is queued and the stream.
  void close();
  /// Of frames that have not left.
  std::uint64_t kept_bytes() const { return kept_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Batch {
    SliceWriter frames;
    /// What is in the packet in addition to them.
    Packet packet;
    std::shared_ptr<LaneStream> stream;
  };
  /// Ready to be written, or without a stream when there is nothing to write or it must not be now.
  Batch take_batch_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool has_work_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Writes the batch, and those that are ready when that has ended at once.
  void write(Batch batch);
  /// Of the next packet; memory for it is kept.
  grpc::ByteBuffer encode(Batch& batch);
  /// Whether the end of the next write is to be waited for by others. `written` counts
  /// those that one thread makes in a row.
  WriteMode next_mode(int written);
  /// The write that was in flight is done: the next batch.
  Batch next_batch() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::size_t packet_bytes_;
  Mutex mutex_;
  std::shared_ptr<LaneStream> stream_ ABSL_GUARDED_BY(mutex_);
  /// What one packet will hold.
  struct Load {
    SliceWriter frames;
    std::size_t count = 0;
  };
  /// All but the last one are full.
  std::deque<Load> loads_ ABSL_GUARDED_BY(mutex_);
  /// In all of them.
  std::size_t queued_frames_ ABSL_GUARDED_BY(mutex_) = 0;
  /// Empty, with memory for the next one's frames.
  SliceWriter spare_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> kept_bytes_{0};
  /// A thread of the executor is going to flush.
  std::atomic<bool> flush_is_due_{false};
  /// What is in the next packet in addition to the frames.
  std::vector<std::string> planes_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> fetched_ ABSL_GUARDED_BY(mutex_);
  /// A caller has asked for `fetched_` to leave.
  bool fetched_is_due_ ABSL_GUARDED_BY(mutex_) = false;
  /// True as long as there is no stream, so that frames wait for it.
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;
  bool corked_ ABSL_GUARDED_BY(mutex_) = false;
  bool packet_is_due_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t riders_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  /// Empty, with memory, of the last packet. As the next one, touched only by the one who writes.
  SliceWriter written_;
  /// When the last write began.
  std::chrono::steady_clock::time_point last_write_;
};

}  // namespace sinew::internal
