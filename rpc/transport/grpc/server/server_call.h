#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/support/byte_buffer.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/grpc/connection/poller.h"
#include "sinew/rpc/transport/grpc/connection/transport_core.h"

namespace sinew::internal {

/// What happens on a call that came in. Runs on polling threads.
class ServerCallEvents {
 public:
  virtual ~ServerCallEvents() = default;
  virtual void on_read_done(bool ok) = 0;
  virtual void on_write_done(bool ok) = 0;
  /// The caller, or its connection, is gone; finish() has to be called all the same.
  virtual void on_cancelled() = 0;
  /// The last event: finish() was called and nothing is in flight.
  virtual void on_done() = 0;
};

/// A call that came in, of whatever method. The owner keeps to gRPC's rules: at most one read and
/// one write at a time, nothing after finish(), and finish() once. It destroys the call in
/// on_done() or later.
class ServerCall {
 public:
  using Arrival = absl::AnyInvocable<void(std::unique_ptr<ServerCall>) &&>;
  /// Waits for the next call to the server of `service`. `on_arrival` runs on a polling thread; not
  /// at all when the server shuts down.
  static void await(TransportCore::Hold hold, Poller& poller, grpc::AsyncGenericService& service,
                    Arrival on_arrival);
  /// Ends a call that has not been bound.
  static void refuse(std::unique_ptr<ServerCall> call, const absl::Status& status);

  grpc::ServerContext& context() { return context_; }
  const std::string& method() const { return context_.method(); }
  /// The first value of a key of the request's metadata, or "".
  std::string metadata(const char* key) const;

  /// Who hears about the call; before the first operation.
  void bind(ServerCallEvents* events);
  void read(grpc::ByteBuffer* message);
  /// `message` lives until on_write_done().
  void write(const grpc::ByteBuffer& message);
  /// Like write(). What ends at once returns its result, and on_write_done() does not come.
  std::optional<bool> write_now(const grpc::ByteBuffer& message);
  void finish(const absl::Status& status);
  /// An answer behind which the call ends well.
  void write_and_finish(const grpc::ByteBuffer& message);

 private:
  ServerCall(TransportCore::Hold hold, Poller& poller, Arrival on_arrival);

  void on_arrived(bool ok);
  void on_closed(bool);
  void on_read(bool ok);
  void on_written(bool ok);
  void on_finished(bool) { operation_done(); }
  void operation_done();

  TransportCore::Hold hold_;
  Poller& poller_;
  Arrival on_arrival_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  MemberCompletion<ServerCall> arrived_{this, &ServerCall::on_arrived};
  MemberCompletion<ServerCall> closed_{this, &ServerCall::on_closed};
  MemberCompletion<ServerCall> read_{this, &ServerCall::on_read};
  MemberCompletion<ServerCall> written_{this, &ServerCall::on_written};
  MemberCompletion<ServerCall> finished_{this, &ServerCall::on_finished};
  /// In addition to reads and writes: the end of the call as gRPC sees it, and finish().
  std::atomic<int> operations_{2};

  std::atomic<ServerCallEvents*> events_{nullptr};
  /// The call may be cancelled before it is bound.
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sinew::internal
