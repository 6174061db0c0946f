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

// What the streams of the calls and bulk lanes wait for.
constexpr unsigned kIsUp = 1;
constexpr unsigned kIsWanted = 2;

// What may ride on the control lane's stream: heartbeats are there too. A connection that carries
// more is worth a stream for it, which costs both ends some 12 KiB and some 50 us.
constexpr std::size_t kMaxRiders = 16;
constexpr std::size_t kMaxRiderBytes = std::size_t{4} << 10;

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
  // The next packet brings the other end up: not before its answer has arrived.
  writer(Lane::kControl).cork();
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
  if (!announce_up(ConnectionEnds::Role::kOpener)) return;
  writer(Lane::kControl).uncork(LaneWriter::Uncork::kPacket);
  control_->start_read();
  open_when_due(StreamKind::kCalls, kIsUp);
  open_when_due(StreamKind::kBulk, kIsUp);
}

bool OpenedConnection::may_ride(const PacketFrame& frame, std::size_t size_bytes) {
  const bool rides = frame.complete() && size_bytes <= kMaxRiderBytes &&
                     riders_.fetch_add(1, std::memory_order_relaxed) < kMaxRiders;
  if (!rides) want_calls();
  return rides;
}

void OpenedConnection::on_riders(std::size_t count) {
  if (riders_.fetch_add(count, std::memory_order_relaxed) + count >= kMaxRiders) want_calls();
}

void OpenedConnection::want_calls() {
  end_rides();
  open_when_due(StreamKind::kCalls, kIsWanted);
}

void OpenedConnection::want_bulk() {
  want_calls();
  open_when_due(StreamKind::kBulk, kIsWanted);
}

void OpenedConnection::open_when_due(StreamKind kind, unsigned condition) {
  constexpr unsigned kBoth = kIsUp | kIsWanted;
  std::atomic<unsigned>& conditions = conditions_[static_cast<std::size_t>(kind)];
  if ((conditions.load(std::memory_order_relaxed) & condition) != 0) return;
  const unsigned before = conditions.fetch_or(condition, std::memory_order_acq_rel);
  if (before == kBoth || (before | condition) != kBoth) return;
  if (enter_callback() == nullptr) return;
  if (const auto stream = open_stream(kind, token_, ClientStream::Begin::kNow)) {
    stream->start_read();
    kind == StreamKind::kCalls ? open_calls(stream) : bulk_sender().open(stream);
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
