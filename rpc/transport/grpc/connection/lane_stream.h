#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "grpcpp/support/byte_buffer.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// The gRPC streams of a connection.
enum class StreamKind : std::uint8_t { kControl = 0, kCalls = 1, kBulk = 2 };
constexpr int kStreamCount = 3;

/// How a writer finds its stream: idle, or busy with a message of the handshake, whose end it will
/// be told.
enum class WriterStart { kIdle, kBusy };

/// Whether a write may end within the call that starts it; otherwise the end is always reported.
enum class WriteMode { kMayEndNow, kEndsLater };
enum class WriteEnd { kNow, kLater };

/// How many writes one thread makes one after the other because each of them ended at once: what
/// others queue meanwhile must not keep it from its own work.
constexpr int kMaxWritesInARow = 8;

/// What happens on a stream. on_read() and on_written() run on polling threads, and may do so at
/// the same time for one stream; on_ended() runs on the timers' thread at the opener's end, at the
/// acceptor's on the one that saw the stream's last operation end.
class StreamEvents {
 public:
  virtual ~StreamEvents() = default;
  virtual void on_read(StreamKind stream, grpc::ByteBuffer message) = 0;
  virtual void on_written(StreamKind stream) = 0;
  /// The last event. `status` is the acceptor's where it gave one (marked as such), otherwise
  /// gRPC's.
  virtual void on_ended(StreamKind stream, const absl::Status& status, bool said_by_acceptor) = 0;
};

/// One Exchange stream, the same from both ends. gRPC allows no operation on a stream after the one
/// that ends it; this class keeps that rule between threads that do not know of each other. At most
/// one read and one write at a time.
class LaneStream {
 public:
  enum class AfterEnd { kReadOn, kNoReads };
  LaneStream(StreamKind kind, AfterEnd after_end, std::shared_ptr<StreamEvents> events)
      : kind_(kind), after_end_(after_end), events_(std::move(events)) {}
  virtual ~LaneStream() = default;

  StreamKind kind() const { return kind_; }

  // These do nothing once end() has been called.

  /// kNow: the message is written already, and on_written() does not come.
  WriteEnd start_write(grpc::ByteBuffer message, WriteMode mode);
  void start_read();
  /// Ends the stream; on_ended() follows, not inside this call. `status` reaches the other end when
  /// this end is the acceptor's and no write is stuck; an OK status stands for "as the other end
  /// wants it". Idempotent: the first call counts.
  void end(const absl::Status& status);

 protected:
  /// Returns the result of a write that has ended; then write_done() does not follow.
  virtual std::optional<bool> issue_write(const grpc::ByteBuffer& message, WriteMode mode) = 0;
  virtual void issue_read(grpc::ByteBuffer* message) = 0;
  /// What issue_end() may need to know.
  struct EndState {
    absl::Status status;
    bool write_in_flight = false;
    /// There is no reader, though there may be messages: time for drop_messages(), if at all.
    bool unread = false;
  };
  virtual void issue_end(const EndState& state) = 0;
  /// Reads on after end(), so that the end is seen behind unwanted messages; they are dropped.
  void drop_messages() { issue_read(&incoming_); }

  // For the reactions of the derived classes.
  void read_done(bool ok);
  /// The stream is of no more use. The opener's end learns the reason in on_ended().
  void broken() { end(absl::OkStatus()); }
  void write_done(bool ok);
  void done(const absl::Status& status, bool said_by_acceptor);

 private:
  void write_ended();
  void end_operation();
  EndState end_state_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const StreamKind kind_;
  const AfterEnd after_end_;
  /// Released in done(): the events' owner holds this stream.
  std::shared_ptr<StreamEvents> events_;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  Mutex mutex_;
  /// Operations that are being handed to gRPC at this moment.
  int issuing_ ABSL_GUARDED_BY(mutex_) = 0;
  bool write_in_flight_ ABSL_GUARDED_BY(mutex_) = false;
  bool read_in_flight_ ABSL_GUARDED_BY(mutex_) = false;
  bool read_failed_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
