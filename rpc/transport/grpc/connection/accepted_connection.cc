#include "sinew/rpc/transport/grpc/connection/accepted_connection.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/malformed.h"
#include "sinew/rpc/transport/grpc/connection/packet_codec.h"
#include "sinew/rpc/transport/grpc/connection/peer_identity.h"
#include "sinew/rpc/transport/origin.h"

namespace sinew::internal {
namespace {

// No turn has this number.
constexpr std::uint64_t kTurnIsOver = ~std::uint64_t{0};

}  // namespace

std::string TokenRegistry::issue(const std::shared_ptr<AcceptedConnection>& connection) {
  std::string token = absl::StrFormat("%016x%016x", random_secret(), random_secret());
  MutexLock lock(mutex_);
  connections_[token] = connection;
  return token;
}

std::shared_ptr<AcceptedConnection> TokenRegistry::find(const std::string& token) {
  MutexLock lock(mutex_);
  const auto entry = connections_.find(token);
  return entry == connections_.end() ? nullptr : entry->second.lock();
}

void TokenRegistry::revoke(const std::string& token) {
  MutexLock lock(mutex_);
  connections_.erase(token);
}

AcceptedConnection::AcceptedConnection(std::shared_ptr<TransportCore> core,
                                       std::shared_ptr<TokenRegistry> tokens, Acceptor* acceptor,
                                       std::string origin, Quota::Share handshake)
    : GrpcConnection(std::move(core)),
      tokens_(std::move(tokens)),
      acceptor_(acceptor),
      origin_(std::move(origin)),
      handshake_(std::move(handshake)) {}

void AcceptedConnection::accept(std::shared_ptr<TransportCore> core,
                                std::shared_ptr<TokenRegistry> tokens, Acceptor* acceptor,
                                std::unique_ptr<ServerCall> call) {
  const auto identity = call->context().auth_context();
  const std::string address = call->context().peer();
  Strangers& strangers = core->strangers();
  const std::string host = origin_of(address);
  Quota::Share handshake = Quota::take(strangers.handshakes, host, 1);
  if (!handshake) {
    const absl::Status busy = absl::UnavailableError(
        absl::StrCat("this worker is busy with ", strangers.handshakes->in_all(),
                     " connections on their way up, or with ", strangers.handshakes->per_origin(),
                     " from your address: try again"));
    strangers.refusals.add(absl::StrCat("a connection from ", host, " was refused: there are ",
                                        strangers.handshakes->used(), " on their way up"));
    refuse_exchange(std::move(call), busy);
    return;
  }
  std::shared_ptr<AcceptedConnection> connection(
      new AcceptedConnection(std::move(core), std::move(tokens), acceptor,
                             stream_origin(identity.get(), address), std::move(handshake)));
  connection->set_remote("", peer_identity(identity.get(), address));
  if (!connection->enter()) {
    refuse_exchange(std::move(call), absl::UnavailableError("the worker shuts down"));
    return;
  }
  const std::shared_ptr<ServerStream> stream =
      ServerStream::accept(StreamKind::kControl, connection->as_events(), std::move(call));
  if (!connection->add_stream(stream)) return;
  const std::uint64_t turn = strangers.receiving->enter(host, [stream] { stream->start_read(); });
  {
    MutexLock lock(connection->handshake_mutex_);
    // The hello may be here, or the end: then the turn is over.
    if (connection->turn_ == 0) {
      connection->turn_ = turn;
      return;
    }
  }
  strangers.receiving->leave(turn);
}

void AcceptedConnection::end_turn() {
  std::uint64_t turn = 0;
  {
    MutexLock lock(handshake_mutex_);
    turn = std::exchange(turn_, kTurnIsOver);
  }
  core().strangers().receiving->leave(turn);
}

void AcceptedConnection::end_handshake() {
  Quota::Share ended;
  MutexLock lock(handshake_mutex_);
  ended = std::move(handshake_);
}

void AcceptedConnection::attach(StreamKind kind, std::unique_ptr<ServerCall> call) {
  if (stream_origin(call->context().auth_context().get(), call->context().peer()) != origin_) {
    refuse_exchange(std::move(call),
                    absl::PermissionDeniedError("this connection belongs to another peer"));
    return;
  }
  const unsigned bit = 1u << static_cast<unsigned>(kind);
  if ((attached_.fetch_or(bit) & bit) != 0) {
    refuse_exchange(std::move(call), absl::InvalidArgumentError("this lane is open already"));
    return;
  }
  const std::shared_ptr<ServerStream> stream =
      ServerStream::accept(kind, as_events(), std::move(call));
  if (!add_stream(stream)) return;
  if (kind == StreamKind::kCalls) {
    end_rides();
    open_calls(stream);
  } else {
    bulk_sender().open(stream);
  }
  {
    MutexLock lock(handshake_mutex_);
    if (!is_reading_) {
      unread_.push_back(stream);
      return;
    }
  }
  stream->start_read();
}

// Its opener sends something as soon as it has the answer: so the answer has arrived.
void AcceptedConnection::come_up(grpc::ByteBuffer message) {
  if (!announce_up(ConnectionEnds::Role::kAcceptor)) return;
  end_handshake();
  std::vector<std::shared_ptr<LaneStream>> unread;
  {
    MutexLock lock(handshake_mutex_);
    is_reading_ = true;
    unread.swap(unread_);
  }
  for (const auto& stream : unread) stream->start_read();
  on_read(StreamKind::kControl, std::move(message));
}

void AcceptedConnection::on_handshake_read(StreamKind, grpc::ByteBuffer message) {
  if (is_answered_) return come_up(std::move(message));
  end_turn();
  if (!enter_handshake()) return;
  if (absl::Status status = ask_acceptor(message); !status.ok()) take_down(status);
  leave_callback();
}

absl::Status AcceptedConnection::ask_acceptor(const grpc::ByteBuffer& message) {
  absl::StatusOr<Packet> packet = decode_packet(message, core().limits());
  if (!packet.ok()) return packet.status();
  if (packet->frames.size() != 1 || !packet->frames[0].complete()) {
    return malformed("no hello");
  }
  const absl::Status fits = check_hello_bytes(packet->frames[0].size_bytes());
  if (!fits.ok()) return fits;
  const AuthenticatedPeer peer = remote();
  absl::StatusOr<Acceptor::Accepted> accepted =
      acceptor_->on_connection(packet->frames[0].envelope, peer);
  if (!accepted.ok()) return accepted.status();
  set_handler(std::move(accepted->handler));
  if (absl::Status own_fits = check_hello_bytes(accepted->hello.size()); !own_fits.ok()) {
    return own_fits;
  }
  set_remote(std::move(packet->frames[0].envelope), peer);
  set_local_hello(accepted->hello);
  token_ = tokens_->issue(self());
  const std::shared_ptr<LaneStream> control = stream(StreamKind::kControl);
  if (control == nullptr) return absl::OkStatus();
  writer(Lane::kControl).open(control, WriterStart::kBusy);
  Packet answer;
  answer.frames.resize(2);
  answer.frames[0].envelope = std::move(accepted->hello);
  answer.frames[1].envelope = token_;
  write_handshake(*control, encode_packet(answer));
  is_answered_ = true;
  control->start_read();
  return absl::OkStatus();
}

absl::Status AcceptedConnection::explain_end(const absl::Status&, bool) const {
  return absl::UnavailableError(
      absl::StrCat("the other end at ", remote().address, " closed the connection or it broke"));
}

void AcceptedConnection::release() {
  tokens_->revoke(token_);
  end_turn();
  end_handshake();
  std::vector<std::shared_ptr<LaneStream>> unread;
  MutexLock lock(handshake_mutex_);
  unread.swap(unread_);
}

}  // namespace sinew::internal
