#include "sinew/rpc/transport/grpc/internal/accepted_connection.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/transport/grpc/internal/packet_codec.h"
#include "sinew/rpc/transport/grpc/internal/peer_identity.h"

namespace sinew::internal {

std::string TokenRegistry::issue(const std::shared_ptr<AcceptedConnection>& connection) {
  std::string token = absl::StrFormat("%016x%016x", random_secret(), random_secret());
  absl::MutexLock lock(&mutex_);
  connections_[token] = connection;
  return token;
}

std::shared_ptr<AcceptedConnection> TokenRegistry::find(const std::string& token) {
  absl::MutexLock lock(&mutex_);
  const auto entry = connections_.find(token);
  return entry == connections_.end() ? nullptr : entry->second.lock();
}

void TokenRegistry::revoke(const std::string& token) {
  absl::MutexLock lock(&mutex_);
  connections_.erase(token);
}

AcceptedConnection::AcceptedConnection(std::shared_ptr<TransportCore> core,
                                       std::shared_ptr<TokenRegistry> tokens, Acceptor* acceptor,
                                       std::string origin)
    : GrpcConnection(std::move(core)),
      tokens_(std::move(tokens)),
      acceptor_(acceptor),
      origin_(std::move(origin)) {}

ExchangeReactor* AcceptedConnection::accept(std::shared_ptr<TransportCore> core,
                                            std::shared_ptr<TokenRegistry> tokens,
                                            Acceptor* acceptor,
                                            grpc::CallbackServerContext* context) {
  const auto identity = context->auth_context();
  std::shared_ptr<AcceptedConnection> connection(
      new AcceptedConnection(std::move(core), std::move(tokens), acceptor,
                             stream_origin(identity.get(), context->peer())));
  connection->set_remote("", peer_identity(identity.get(), context->peer()));
  TransportCore::Hold hold = connection->core().hold();
  if (!hold || !connection->enter()) {
    return refuse_exchange(context, absl::UnavailableError("the worker shuts down"));
  }
  std::shared_ptr<ServerStream> stream =
      ServerStream::accept(StreamKind::kControl, connection->as_events(), std::move(hold), context);
  if (connection->add_stream(stream)) stream->start_read();
  return stream.get();
}

ExchangeReactor* AcceptedConnection::attach(StreamKind kind, grpc::CallbackServerContext* context) {
  const unsigned bit = 1u << static_cast<unsigned>(kind);
  constexpr unsigned kAll = 1u << static_cast<unsigned>(StreamKind::kCalls) |
                            1u << static_cast<unsigned>(StreamKind::kBulk);
  if (stream_origin(context->auth_context().get(), context->peer()) != origin_) {
    return refuse_exchange(context,
                           absl::PermissionDeniedError("this connection belongs to somebody else"));
  }
  if (stream(kind) != nullptr || is_up()) {
    return refuse_exchange(context, absl::InvalidArgumentError("this lane is open already"));
  }
  TransportCore::Hold hold = core().hold();
  if (!hold) return refuse_exchange(context, absl::UnavailableError("the worker shuts down"));
  std::shared_ptr<ServerStream> stream =
      ServerStream::accept(kind, as_events(), std::move(hold), context);
  if (!add_stream(stream)) return stream.get();
  if (kind == StreamKind::kCalls) {
    writer(Lane::kCalls).open(stream, WriterStart::kBusy);
  } else {
    bulk_sender().open(stream, WriterStart::kBusy);
  }
  // on_up comes before the answer that lets the other end be up: what it sends then finds this end
  // ready.
  if ((attached_.fetch_or(bit) | bit) == kAll) announce_up();
  stream->start_write(encode_packet(Packet()));
  return stream.get();
}

void AcceptedConnection::on_handshake_read(StreamKind, grpc::ByteBuffer message) {
  if (!enter_handshake()) return;
  if (absl::Status status = ask_acceptor(message); !status.ok()) take_down(status);
  leave_callback();
}

absl::Status AcceptedConnection::ask_acceptor(const grpc::ByteBuffer& message) {
  absl::StatusOr<Packet> packet = decode_packet(message, core().limits());
  if (!packet.ok()) return packet.status();
  if (packet->frames.size() != 1 || !packet->frames[0].complete()) {
    return absl::InvalidArgumentError("malformed message: no hello");
  }
  const AuthenticatedPeer peer = remote();
  absl::StatusOr<Acceptor::Accepted> accepted =
      acceptor_->on_connection(packet->frames[0].envelope, peer);
  if (!accepted.ok()) return accepted.status();
  set_handler(std::move(accepted->handler));
  if (accepted->hello.size() > kMaxHelloBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a hello of ", accepted->hello.size(),
                                                   " bytes is larger than the limit of ",
                                                   kMaxHelloBytes));
  }
  set_remote(std::move(packet->frames[0].envelope), peer);
  token_ = tokens_->issue(self());
  const std::shared_ptr<LaneStream> control = stream(StreamKind::kControl);
  if (control == nullptr) return absl::OkStatus();
  writer(Lane::kControl).open(control, WriterStart::kBusy);
  Packet answer;
  answer.frames.resize(2);
  answer.frames[0].envelope = std::move(accepted->hello);
  answer.frames[1].envelope = token_;
  control->start_write(encode_packet(answer));
  return absl::OkStatus();
}

absl::Status AcceptedConnection::explain_end(const absl::Status&, bool) const {
  return absl::UnavailableError(
      absl::StrCat("the other end at ", remote().address, " closed the connection or it broke"));
}

void AcceptedConnection::release() { tokens_->revoke(token_); }

}  // namespace sinew::internal
