#include "sinew/rpc/transport/grpc/connection/opened_connection.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/malformed.h"
#include "sinew/rpc/transport/grpc/connection/channel.h"
#include "sinew/rpc/transport/grpc/connection/grpc_status.h"
#include "sinew/rpc/transport/grpc/connection/packet_codec.h"

namespace sinew::internal {

OpenedConnection::OpenedConnection(std::shared_ptr<TransportCore> core, std::string address)
    : GrpcConnection(std::move(core)), address_(std::move(address)) {
  AuthenticatedPeer unproven;
  unproven.address = address_;
  set_remote("", std::move(unproven));
}

std::shared_ptr<Connection> OpenedConnection::open(std::shared_ptr<TransportCore> core,
                                                   std::string address, const std::string& hello,
                                                   const std::string& expected_name,
                                                   std::shared_ptr<ConnectionHandler> handler) {
  std::shared_ptr<OpenedConnection> connection(
      new OpenedConnection(std::move(core), std::move(address)));
  if (!connection->enter()) return connection;
  // Held up until the first stream is on its way, for the sake of channel_ and control_.
  if (!connection->enter_handshake()) return connection;
  connection->set_handler(std::move(handler));
  connection->begin(hello, expected_name);
  connection->leave_callback();
  return connection;
}

void OpenedConnection::begin(const std::string& hello, const std::string& expected_name) {
  if (hello.size() > kMaxHelloBytes) {
    take_down(absl::InvalidArgumentError(absl::StrCat(
        "a hello of ", hello.size(), " bytes is larger than the limit of ", kMaxHelloBytes)));
    return;
  }
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      make_channel(address_, core().options(), expected_name);
  if (!channel.ok()) {
    take_down(channel.status());
    return;
  }
  channel_ = *std::move(channel);
  set_local_hello(hello);
  Packet packet;
  packet.frames.emplace_back().envelope = hello;
  control_ = open_stream(StreamKind::kControl, "");
  if (control_ == nullptr) return;
  writer(Lane::kControl).open(control_, WriterStart::kBusy);
  write_handshake(*control_, encode_packet(packet));
  control_->start_read();
}

std::shared_ptr<ClientStream> OpenedConnection::open_stream(StreamKind kind,
                                                            const std::string& token) {
  std::shared_ptr<ClientStream> stream =
      ClientStream::open(kind, as_events(), shared_core(), channel_, token);
  if (stream == nullptr) {
    take_down(absl::UnavailableError("the transport shuts down"));
    return nullptr;
  }
  return add_stream(stream) ? stream : nullptr;
}

void OpenedConnection::on_handshake_read(StreamKind stream_kind, grpc::ByteBuffer message) {
  if (!enter_handshake()) return;
  if (stream_kind == StreamKind::kControl) {
    on_acceptor_hello(message);
  } else if (++lanes_ready_ == 2) {
    announce_up(ConnectionEnds::Role::kOpener);
  }
  leave_callback();
}

void OpenedConnection::on_acceptor_hello(const grpc::ByteBuffer& message) {
  absl::StatusOr<Packet> packet = decode_packet(message, core().limits());
  if (packet.ok() && (packet->frames.size() != 2 || !packet->frames[0].complete())) {
    packet = malformed("no hello");
  }
  if (!packet.ok()) {
    take_down(packet.status());
    return;
  }
  set_remote(std::move(packet->frames[0].envelope), control_->remote());
  const std::string token = std::move(packet->frames[1].envelope);
  const auto calls = open_stream(StreamKind::kCalls, token);
  if (calls == nullptr) return;
  const auto bulk = open_stream(StreamKind::kBulk, token);
  if (bulk == nullptr) return;
  calls->start_read();
  bulk->start_read();
  // Frames that were sent early leave now: the other end does not read them before it is up.
  writer(Lane::kCalls).open(calls, WriterStart::kIdle);
  bulk_sender().open(bulk, WriterStart::kIdle);
}

void OpenedConnection::release() {
  control_.reset();
  channel_.reset();
}

absl::Status OpenedConnection::explain_end(const absl::Status& status,
                                           bool said_by_acceptor) const {
  if (!said_by_acceptor) {
    return explain_failure(status, address_, core().options().credentials);
  }
  if (status.ok() || status.code() == absl::StatusCode::kCancelled) {
    return absl::UnavailableError(absl::StrCat(address_, " closed the connection"));
  }
  return status;
}

}  // namespace sinew::internal
