#pragma once

#include <memory>

#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "sinew/rpc/transport/grpc/internal/lane_stream.h"
#include "sinew/rpc/transport/grpc/internal/transport_core.h"

namespace sinew::internal {

using ExchangeReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

/// The acceptor's end of a stream. Lives until gRPC has reported its end, whoever else holds it.
class ServerStream final : public LaneStream, public ExchangeReactor {
 public:
  /// The reactor to hand to gRPC is the result itself.
  static std::shared_ptr<ServerStream> accept(StreamKind kind, std::shared_ptr<StreamEvents> events,
                                              TransportCore::Hold hold,
                                              grpc::CallbackServerContext* context);

 private:
  ServerStream(StreamKind kind, std::shared_ptr<StreamEvents> events, TransportCore::Hold hold,
               grpc::CallbackServerContext* context)
      : LaneStream(kind, AfterEnd::kNoReads, std::move(events)),
        hold_(std::move(hold)),
        context_(context) {}

  void issue_write(const grpc::ByteBuffer* message) override { StartWrite(message); }
  void issue_read(grpc::ByteBuffer* message) override { StartRead(message); }
  void issue_end(const EndState& state) override;

  void OnReadDone(bool ok) override { read_done(ok); }
  void OnWriteDone(bool ok) override { write_done(ok); }
  void OnCancel() override { broken(); }
  void OnDone() override;

  TransportCore::Hold hold_;
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<ServerStream> self_;
};

/// A stream that is refused at once with `status`.
ExchangeReactor* refuse_exchange(grpc::CallbackServerContext* context, const absl::Status& status);

}  // namespace sinew::internal
