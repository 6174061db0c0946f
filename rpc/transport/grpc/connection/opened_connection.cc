#include "sinew/rpc/transport/grpc/connection/opened_connection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/malformed.h"
#include "sinew/rpc/transport/grpc/connection/channel.h"
#include "sinew/rpc/transport/grpc/connection/grpc_status.h"
#include "sinew/rpc/transport/grpc/connection/packet_codec.h"

namespace sinew::internal {
namespace {

// What the bulk stream waits for.
constexpr unsigned kIsUp = 1;
constexpr unsigned kIsWanted = 2;

// gRPC ends the process over metadata that are none.
bool is_token(const PacketFrame& frame) {
  return frame.complete() && !frame.envelope.empty() && frame.size_bytes() <= kMaxTokenBytes &&
         std::all_of(frame.envelope.begin(), frame.envelope.end(),
                     [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
}

absl::Status check_answer(const Packet& packet) {
  if (packet.frames.size() != 2 || !packet.frames[0].complete()) return malformed("no hello");
  if (!is_token(packet.frames[1])) return malformed("no token");
  return check_hello_bytes(packet.frames[0].size_bytes());
}

}  // namespace

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
  if (const absl::Status fits = check_hello_bytes(hello.size()); !fits.ok()) {
    take_down(fits);
    return;
  }
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      make_channel(address_, core().options(), expected_name,
                   core().planes().planes.empty() ? Carries::kEverything : Carries::kLittle);
  if (!channel.ok()) {
    take_down(channel.status());
    return;
  }
  channel_ = *std::move(channel);
  set_local_hello(hello);
  Packet packet;
  packet.frames.emplace_back().envelope = hello;
  control_ = open_stream(StreamKind::kControl, "", ClientStream::Begin::kWithMessage);
  if (control_ == nullptr) return;
  writer(Lane::kControl).open(control_, WriterStart::kBusy);
  write_handshake(*control_, encode_packet(packet));
  control_->start_read();
}

std::shared_ptr<ClientStream> OpenedConnection::open_stream(StreamKind kind,
                                                            const std::string& token,
                                                            ClientStream::Begin begin) {
  std::shared_ptr<ClientStream> stream =
      ClientStream::open(kind, as_events(), shared_core(), channel_, token, begin);
  if (stream == nullptr) {
    take_down(absl::UnavailableError("the transport shuts down"));
    return nullptr;
  }
  return add_stream(stream) ? stream : nullptr;
}

void OpenedConnection::on_handshake_read(StreamKind, grpc::ByteBuffer message) {
  if (!enter_handshake()) return;
  on_acceptor_hello(message);
  leave_callback();
}

void OpenedConnection::on_acceptor_hello(const grpc::ByteBuffer& message) {
  absl::StatusOr<Packet> packet = decode_packet(message, core().limits());
  if (const absl::Status sound = packet.ok() ? check_answer(*packet) : packet.status();
      !sound.ok()) {
    take_down(sound);
    return;
  }
  set_remote(std::move(packet->frames[0].envelope), control_->remote());
  token_ = std::move(packet->frames[1].envelope);
  // What has been sent early, if anything, goes with it.
  const auto calls = open_stream(StreamKind::kCalls, token_,
                                 writer(Lane::kCalls).has_work() ? ClientStream::Begin::kWithMessage
                                                                 : ClientStream::Begin::kNow);
  if (calls == nullptr) return;
  // The other end reads no lane before it is up, which it is
  // when it has seen this stream.
  writer(Lane::kCalls).open(calls, WriterStart::kIdle);
  announce_up(ConnectionEnds::Role::kOpener);
  open_bulk_when_due(kIsUp);
}

void OpenedConnection::want_bulk() {
  if ((bulk_conditions_.load(std::memory_order_relaxed) & kIsWanted) == 0) {
    open_bulk_when_due(kIsWanted);
  }
}

void OpenedConnection::open_bulk_when_due(unsigned condition) {
  constexpr unsigned kBoth = kIsUp | kIsWanted;
  const unsigned before = bulk_conditions_.fetch_or(condition, std::memory_order_acq_rel);
  if (before == kBoth || (before | condition) != kBoth) return;
  if (enter_callback() == nullptr) return;
  if (const auto bulk = open_stream(StreamKind::kBulk, token_, ClientStream::Begin::kNow)) {
    bulk->start_read();
    bulk_sender().open(bulk);
  }
  leave_callback();
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
