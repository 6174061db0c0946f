#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/grpc/connection/transport_core.h"
#include "sinew/rpc/transport/grpc/server/server_call.h"
#include "sinew/rpc/transport/quota.h"

namespace sinew::internal {

class ForeignCall;

/// The foreign calls that have not ended, so that shutdown can end them, and so that their number
/// and time are bounded. Thread-safe.
class ForeignCalls : public std::enable_shared_from_this<ForeignCalls> {
 public:
  explicit ForeignCalls(std::shared_ptr<TransportCore> core) : core_(std::move(core)) {}
  /// From now on calls that take too long to arrive or to be answered are ended.
  void start();

  /// kResourceExhausted when there are too many of them, kUnavailable after end_all(); the call is
  /// not entered then.
  absl::Status add(const std::shared_ptr<ForeignCall>& call);
  void remove(const std::shared_ptr<ForeignCall>& call);
  /// Ends all calls, now and from now on.
  void end_all(const absl::Status& status);

  Strangers& strangers() const { return core_->strangers(); }

 private:
  void end_overdue();

  const std::shared_ptr<TransportCore> core_;
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_set<std::shared_ptr<ForeignCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

/// A call of a client that is no Sinew worker. Keeps the call's rules between threads that do not
/// know of each other, and lives until its end.
class ForeignCall : public ServerCallEvents, public std::enable_shared_from_this<ForeignCall> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Enters `call` and reads its first message, or refuses it.
  static void start(const std::shared_ptr<ForeignCall>& call);
  ~ForeignCall() override = default;

  /// The worker shuts down. By default the call just ends with `status`.
  virtual void end(const absl::Status& status) { finish(status); }
  /// Ends the call if since `limit` the message that it waits for has not arrived, or its answer
  /// not been taken.
  void end_if_waiting_since(Time limit);

 protected:
  /// `quota` bounds the number of such calls.
  ForeignCall(std::shared_ptr<ForeignCalls> calls, std::unique_ptr<ServerCall> call,
              std::shared_ptr<Quota> quota);

  /// A message has arrived; the next one is not read before read_next().
  virtual void on_message(const grpc::ByteBuffer& message) = 0;
  /// No more messages come. By default the call ends well.
  virtual void on_messages_end() { finish(absl::OkStatus()); }
  virtual void on_written() {}
  /// The call has ended; others may keep this object for longer.
  virtual void release() {}
  void on_cancelled() override { finish(absl::CancelledError("the caller cancelled")); }

  ServerCall& call() { return *call_; }
  /// Where it comes from; see origin.h.
  const std::string& origin() const { return origin_; }
  Strangers& strangers() const { return calls_->strangers(); }
  // These do nothing after the call has been finished.
  /// When it has its turn; see Turns.
  void read_next();
  /// Not before on_written() of the last one.
  void write(grpc::ByteBuffer message);
  /// Also while a write is in flight: behind it.
  void write_and_finish(grpc::ByteBuffer message);
  void finish(const absl::Status& status);

 private:
  friend class ForeignCalls;
  void read_in_turn();
  /// The message has arrived, or will not.
  void end_turn();
  void on_read_done(bool ok) final;
  void on_write_done(bool ok) final;
  void on_done() final;

  const std::shared_ptr<ForeignCalls> calls_;
  const std::shared_ptr<Quota> quota_;
  const std::string origin_;
  std::unique_ptr<ServerCall> call_;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  /// Waits for the write in flight.
  std::optional<grpc::ByteBuffer> last_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  /// Part of its quota, as long as it lasts.
  Quota::Share share_ ABSL_GUARDED_BY(mutex_);
  /// The number of its turn among those that receive a message; 0: none, or not known yet.
  std::uint64_t turn_ ABSL_GUARDED_BY(mutex_) = 0;
  /// A read may end before its turn's number is known.
  std::uint64_t reads_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t reads_ended_ ABSL_GUARDED_BY(mutex_) = 0;
  /// Since when it waits for the client to send or to take something.
  std::optional<Time> waits_since_ ABSL_GUARDED_BY(mutex_);
};

/// The status of a call that is refused before its method could see it, so that it is safe to
/// repeat.
absl::Status did_not_run(absl::Status status);
/// That of a call whose method has run, and whose result this worker does not send.
absl::Status result_not_sent(absl::Status status);

/// One message of a protocol that is spoken with foreign clients. kInvalidArgument for bytes that
/// are none, and for more than a client has reason to send.
absl::Status parse_message(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite& message);
grpc::ByteBuffer serialize_message(const google::protobuf::MessageLite& message);

}  // namespace sinew::internal
