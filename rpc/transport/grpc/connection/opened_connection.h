#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "grpcpp/channel.h"
#include "sinew/rpc/transport/grpc/connection/client_stream.h"
#include "sinew/rpc/transport/grpc/connection/grpc_connection.h"

namespace sinew::internal {

/// The opener's end of a connection. The handshake is one round trip: the control stream carries
/// the hello there, the acceptor's hello and a token come back, and this end is up. The calls
/// stream follows at once and shows the token, which brings the acceptor's end up. The bulk stream
/// follows when this end has something for it, be it a grant for what the other one has: most
/// connections never have.
class OpenedConnection final : public GrpcConnection {
 public:
  static std::shared_ptr<Connection> open(std::shared_ptr<TransportCore> core, std::string address,
                                          const std::string& hello,
                                          const std::string& expected_name,
                                          std::shared_ptr<ConnectionHandler> handler);

 private:
  OpenedConnection(std::shared_ptr<TransportCore> core, std::string address);

  void begin(const std::string& hello, const std::string& expected_name);
  std::shared_ptr<ClientStream> open_stream(StreamKind kind, const std::string& token,
                                            ClientStream::Begin begin);
  void on_handshake_read(StreamKind stream, grpc::ByteBuffer message) override;
  void on_acceptor_hello(const grpc::ByteBuffer& message);
  void want_bulk() override;
  void open_bulk_when_due(unsigned condition);
  absl::Status explain_end(const absl::Status& status, bool said_by_acceptor) const override;
  void release() override;

  const std::string address_;
  // For opening streams; touched only between enter_handshake() or enter_callback() and
  // leave_callback(), and by release() after those.
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<ClientStream> control_;
  std::string token_;
  /// Which conditions of the bulk stream are met: whoever meets the last one opens it.
  std::atomic<unsigned> bulk_conditions_{0};
};

}  // namespace sinew::internal
