#pragma once

#include <memory>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "sinew/rpc/transport/grpc/internal/lane_stream.h"
#include "sinew/rpc/transport/grpc/internal/transport_core.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

/// The opener's end of a stream. Lives until gRPC has reported its end, whoever else holds it.
class ClientStream final : public LaneStream,
                           public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  /// Begins the call. `token` is empty for the control stream, which gets it from the acceptor.
  static std::shared_ptr<ClientStream> open(StreamKind kind, std::shared_ptr<StreamEvents> events,
                                            std::shared_ptr<TransportCore> core,
                                            std::shared_ptr<grpc::Channel> channel,
                                            const std::string& token);
  ~ClientStream() override;

  /// Who answered; valid once something was read.
  AuthenticatedPeer remote() const;

 private:
  ClientStream(StreamKind kind, std::shared_ptr<StreamEvents> events,
               std::shared_ptr<TransportCore> core, std::shared_ptr<grpc::Channel> channel);

  void issue_write(const grpc::ByteBuffer* message) override { StartWrite(message); }
  void issue_read(grpc::ByteBuffer* message) override { StartRead(message); }
  void issue_end(const EndState& state) override;

  void OnReadDone(bool ok) override { read_done(ok); }
  void OnWriteDone(bool ok) override { write_done(ok); }
  void OnDone(const grpc::Status& status) override;

  const std::shared_ptr<TransportCore> core_;
  TransportCore::Hold hold_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::shared_ptr<ClientStream> self_;
};

}  // namespace sinew::internal
