#pragma once

#include <array>
#include <atomic>
#include <cstddef>
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
  bool may_ride(const PacketFrame& frame, std::size_t size_bytes) override;
  void on_riders(std::size_t count) override;
  void want_calls() override;
  void open_when_due(StreamKind kind, unsigned condition);
  absl::Status explain_end(const absl::Status& status, bool said_by_acceptor) const override;
  void release() override;

  const std::string address_;
  // For opening streams; touched only between enter_handshake() or enter_callback() and
  // leave_callback(), and by release() after those.
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<ClientStream> control_;
  std::string token_;
  /// Which conditions of the calls and bulk streams are met: the thread that meets the last one
  /// opens it.
  std::array<std::atomic<unsigned>, kStreamCount> conditions_{};
  /// Frames of the calls lane that the control lane's stream has carried, both ways.
  std::atomic<std::size_t> riders_{0};
};

}  // namespace sinew::internal
