#pragma once

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "sinew/rpc/transport/grpc/server/server_call.h"

namespace sinew::internal {

class ForeignCall;

/// The foreign calls that have not ended, so that shutdown can end them. Thread-safe.
class ForeignCalls {
 public:
  /// False, and the call is not entered, after end_all().
  bool add(std::shared_ptr<ForeignCall> call);
  void remove(const std::shared_ptr<ForeignCall>& call);
  /// Ends all calls, now and from now on.
  void end_all(const absl::Status& status);

 private:
  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_set<std::shared_ptr<ForeignCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

/// A call of a client that is no Sinew worker. Keeps the call's rules between threads that do not
/// know of each other, and lives until its end.
class ForeignCall : public ServerCallEvents, public std::enable_shared_from_this<ForeignCall> {
 public:
  /// Enters `call` and reads its first message.
  static void start(const std::shared_ptr<ForeignCall>& call);
  ~ForeignCall() override = default;

  /// The worker shuts down. By default the call just ends with `status`.
  virtual void end(const absl::Status& status) { finish(status); }

 protected:
  ForeignCall(std::shared_ptr<ForeignCalls> calls, std::unique_ptr<ServerCall> call)
      : calls_(std::move(calls)), call_(std::move(call)) {}

  /// A message has come; the next one is not read before read_next().
  virtual void on_message(const grpc::ByteBuffer& message) = 0;
  /// No more messages come. By default the call ends well.
  virtual void on_messages_end() { finish(absl::OkStatus()); }
  virtual void on_written() {}
  void on_cancelled() override { finish(absl::CancelledError("the caller cancelled")); }

  ServerCall& call() { return *call_; }
  // These do nothing after the call has been finished.
  void read_next();
  /// Not before on_written() of the last one.
  void write(grpc::ByteBuffer message);
  /// Also while a write is in flight: behind it.
  void write_and_finish(grpc::ByteBuffer message);
  void finish(const absl::Status& status);

 private:
  void on_read_done(bool ok) final;
  void on_write_done(bool ok) final;
  void on_done() final;

  const std::shared_ptr<ForeignCalls> calls_;
  std::unique_ptr<ServerCall> call_;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  absl::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  /// Waits for the write in flight.
  std::optional<grpc::ByteBuffer> last_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

/// One message of a protocol that is spoken with foreign clients. kInvalidArgument for bytes that
/// are none, and for more than a client has reason to send.
absl::Status parse_message(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite& message);
grpc::ByteBuffer serialize_message(const google::protobuf::MessageLite& message);

}  // namespace sinew::internal
