#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/grpc/connection/lane_stream.h"
#include "sinew/rpc/transport/grpc/connection/poller.h"
#include "sinew/rpc/transport/grpc/connection/transport_core.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

/// The opener's end of a stream. Lives until gRPC has reported its end, even without another
/// holder.
class ClientStream final : public LaneStream {
 public:
  /// When the other end sees the call: at once, or with the first message, in one packet. That is
  /// written before anything is read.
  enum class Begin { kNow, kWithMessage };
  /// `token` is empty for the control stream, which gets it from the acceptor. Null when the
  /// transport shuts down.
  static std::shared_ptr<ClientStream> open(StreamKind kind, std::shared_ptr<StreamEvents> events,
                                            std::shared_ptr<TransportCore> core,
                                            std::shared_ptr<grpc::Channel> channel,
                                            const std::string& token, Begin begin);

  /// Who answered; valid once something was read.
  AuthenticatedPeer remote() const;

 private:
  ClientStream(StreamKind kind, std::shared_ptr<StreamEvents> events,
               std::shared_ptr<TransportCore> core, TransportCore::Hold hold,
               std::shared_ptr<grpc::Channel> channel);

  void begin(const std::string& token, Begin begin);
  void await_end();
  std::optional<bool> issue_write(const grpc::ByteBuffer& message, WriteMode mode) override;
  void issue_read(grpc::ByteBuffer* message) override;
  void issue_end(const EndState& state) override;

  void on_started(bool);
  void on_read(bool ok);
  void on_written(bool ok);
  void on_status(bool) { operation_done(); }
  void operation_done();

  const std::shared_ptr<TransportCore> core_;
  TransportCore::Hold hold_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::Status status_;
  MemberCompletion<ClientStream> started_{this, &ClientStream::on_started};
  MemberCompletion<ClientStream> read_{this, &ClientStream::on_read};
  MemberCompletion<ClientStream> written_{this, &ClientStream::on_written};
  MemberCompletion<ClientStream> ended_{this, &ClientStream::on_status};
  /// In addition to reads and writes: the start, the status, and issue_end(), which comes from
  /// anywhere.
  std::atomic<int> operations_{3};
  /// The first message, or the end, has the start to do. Never both at a time: see LaneStream.
  bool starts_later_ = false;
  std::shared_ptr<ClientStream> self_;

  Mutex start_mutex_;
  bool is_started_ ABSL_GUARDED_BY(start_mutex_) = false;
  /// gRPC sends metadata and messages by the same operation, which may run once at a time.
  const grpc::ByteBuffer* first_write_ ABSL_GUARDED_BY(start_mutex_) = nullptr;
};

}  // namespace sinew::internal
