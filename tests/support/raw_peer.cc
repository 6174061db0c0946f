#include "sinew/tests/support/raw_peer.h"

#include <algorithm>
#include <utility>

#include "sinew/rpc/link/header_codec.h"
#include "sinew/rpc/link/hello.h"
#include "sinew/rpc/link/identity_codec.h"
#include "sinew/rpc/link/link_codec.h"
#include "sinew/rpc/transport/grpc/grpc_transport.h"
#include "sinew/testing/eventually.h"

namespace sinew::testing {

using internal::FrameKind;
using internal::Lane;
using internal::LinkHeader;
using internal::MutexLock;

namespace {

/// What workers of tests have.
internal::LeaseTerms terms() { return {std::chrono::seconds(1), std::chrono::minutes(2)}; }

}  // namespace

WorkerInfo claiming(WorkerInfo claims, const internal::WorkerKey& key) {
  if (claims.incarnation.value == 0) claims.incarnation = key.incarnation();
  return claims;
}

std::unique_ptr<internal::Transport> make_transport_of(Credentials credentials) {
  internal::GrpcTransportOptions options;
  options.credentials = std::move(credentials);
  return internal::make_grpc_transport(std::move(options));
}

RawPeer::RawPeer(WorkerInfo claims, Credentials credentials)
    : RawPeer(std::move(claims), make_transport_of(std::move(credentials))) {}

RawPeer::RawPeer(WorkerInfo claims, std::unique_ptr<internal::Transport> transport)
    : claims_(claiming(std::move(claims), *key_)), transport_(std::move(transport)) {
  acceptor_.refusal = absl::UnavailableError("nobody is let in here");
  const absl::Status started = transport_->start(&acceptor_, nullptr);
  EXPECT_TRUE(started.ok()) << started;
}

RawPeer::~RawPeer() { transport_->shutdown(); }

// ---- Connections.

RawPeer::Attempt RawPeer::open(const std::string& address, const std::string& hello,
                               const std::string& expected_name) {
  Attempt attempt;
  attempt.handler = std::make_shared<internal::RecordingHandler>();
  attempt.handler->set_frames_hook(
      [this](const std::shared_ptr<internal::Connection>& connection, Lane,
             const std::vector<internal::Frame>& frames) { on_frames(connection, frames); });
  attempt.connection = transport_->connect(address, hello, expected_name, attempt.handler);
  eventually([&] { return attempt.handler->is_up() || attempt.handler->is_down(); });
  if (attempt.handler->is_up()) return attempt;
  EXPECT_TRUE(attempt.handler->is_down());
  attempt.status = attempt.handler->reason();
  if (const auto said = internal::read_refusal(attempt.status); said.ok()) attempt.refusal = *said;
  return attempt;
}

absl::StatusOr<WorkerInfo> RawPeer::ask(const std::string& address) {
  proto::Hello hello;
  internal::write_self(self(), hello);
  const Attempt attempt = open(address, internal::seal_hello(hello, self()), "");
  refused_as_ = attempt.refusal.refusal();
  if (attempt.status.ok()) return absl::InternalError("it accepted a connection to nobody");
  if (attempt.refusal.refusal() != proto::WHO_ANSWERS) return attempt.status;
  return internal::read_identity(attempt.refusal.worker());
}

void RawPeer::set_peer(const WorkerInfo& peer) { peer_ = peer; }

internal::SelfDescription RawPeer::self() const {
  return {claims_, "default", transport_->address(), 0, key_, token_};
}

std::string RawPeer::make_hello(const Handshake& handshake) {
  proto::Hello hello;
  internal::write_self(self(), hello);
  internal::write_identity(*peer_, *hello.mutable_expected());
  internal::LinkHello link;
  link.connection = {claims_.incarnation, ++attempts_};
  link.last_up = last_up_;
  link.terms = terms();
  {
    MutexLock lock(mutex_);
    for (std::size_t lane = 0; lane < internal::kLaneCount; ++lane) {
      link.received[lane] = received_[lane].all();
    }
  }
  internal::write_link_hello(link, hello);
  if (handshake.change) handshake.change(hello);
  proto::Hello sealed;
  EXPECT_TRUE(sealed.ParseFromString(internal::seal_hello(hello, self())));
  using Signature = Handshake::Signature;
  if (handshake.signature == Signature::kNone) sealed.clear_signature();
  if (handshake.signature == Signature::kWrong) sealed.mutable_signature()->front() ^= 1;
  return sealed.SerializeAsString();
}

absl::Status RawPeer::connect(const std::string& address, const Handshake& handshake) {
  if (!peer_.has_value()) {
    absl::StatusOr<WorkerInfo> answerer = ask(address);
    if (!answerer.ok()) return answerer.status();
    set_peer(*answerer);
  }
  Attempt attempt;
  // As a worker does: the other end may be opening a connection itself, for a moment.
  eventually([&] {
    attempt = open(address, make_hello(handshake), peer_->name);
    return attempt.refusal.refusal() != proto::BUSY;
  });
  refused_as_ = attempt.refusal.refusal();
  if (!attempt.status.ok()) return attempt.status;
  opened_ = std::move(attempt.handler);
  connection_ = std::move(attempt.connection);
  proto::Hello answer;
  EXPECT_TRUE(answer.ParseFromString(connection_->remote_hello()));
  EXPECT_EQ(answer.worker().incarnation(), peer_->incarnation.value);
  EXPECT_TRUE(internal::is_signed(answer)) << "whoever answers is somebody else";
  const absl::StatusOr<internal::LinkHello> link =
      internal::read_link_hello(answer, claims_.incarnation);
  EXPECT_TRUE(link.ok()) << link.status();
  if (link.ok()) {
    MutexLock lock(mutex_);
    for (std::size_t lane = 0; lane < internal::kLaneCount; ++lane) {
      for (const internal::NumberRange& range : link->received[lane]) {
        note_receipts_locked(range, lane);
      }
    }
  }
  last_up_ = {claims_.incarnation, attempts_};
  // The opener says something at once, so that the other end knows that its answer has come.
  send_link([this](LinkHeader& header) { header.beat = attempts_; });
  return absl::OkStatus();
}

bool RawPeer::wait_ended(const std::string& address) {
  // An attempt that the link has seen before is refused as long as it is there.
  Handshake handshake;
  handshake.change = [](proto::Hello& hello) { hello.set_attempt(0); };
  return eventually([&] {
    EXPECT_FALSE(connect(address, handshake).ok());
    return refused_as_ == proto::LOST_HERE;
  });
}

void RawPeer::forget() {
  peer_.reset();
  last_up_ = {};
  for (std::uint64_t& number : last_number_) number = 0;
  notes_.clear();
  MutexLock lock(mutex_);
  for (internal::FrameNumbers& numbers : received_) numbers = {};
  for (internal::FrameNumbers& numbers : receipts_) numbers = {};
}

void RawPeer::disconnect() {
  connection_->close(absl::CancelledError("it wants to be gone"));
  EXPECT_TRUE(opened_->wait_down());
}

// ---- Sending.

std::uint64_t RawPeer::next_number(FrameKind kind) {
  return ++last_number_[static_cast<std::size_t>(internal::lane_of(kind))];
}

void RawPeer::send_bytes(Lane lane, internal::HeaderBytes header, std::string envelope) {
  internal::Frame frame{std::move(envelope), {}, std::move(header)};
  // It may be down already, for what was sent before.
  connection_->send(lane, std::move(frame)).IgnoreError();
}

void RawPeer::send(FrameKind kind, const proto::Envelope& envelope, const ChangeHeader& change) {
  LinkHeader header;
  header.kind = kind;
  header.number = next_number(kind);
  header.subject = envelope.has_reply() ? envelope.reply().id() : envelope.call().id();
  if (change) change(header);
  if (header.is_note()) notes_.insert(header.number);
  send_bytes(internal::lane_of(kind), internal::write_header(header), envelope.SerializeAsString());
}

void RawPeer::send_void(FrameKind kind, std::uint64_t bytes) {
  LinkHeader header;
  header.kind = kind;
  header.number = next_number(kind);
  header.is_void = true;
  header.bytes = bytes;
  send_bytes(internal::lane_of(kind), internal::write_header(header));
}

void RawPeer::send_link(const ChangeHeader& change) {
  LinkHeader header;
  change(header);
  send_bytes(Lane::kControl, internal::write_header(header));
}

void RawPeer::fall_silent() {
  MutexLock lock(mutex_);
  silent_ = true;
}

std::uint64_t RawPeer::call(const std::string& method,
                            const std::function<void(proto::Call&)>& fill) {
  proto::Envelope envelope;
  envelope.mutable_call()->set_id(++last_call_);
  envelope.mutable_call()->set_method(method);
  if (fill) fill(*envelope.mutable_call());
  send(FrameKind::kRequest, envelope);
  return last_call_;
}

absl::StatusOr<std::string> RawPeer::control_call(const std::string& method,
                                                  const std::string& body) {
  proto::Envelope envelope;
  envelope.mutable_call()->set_id(++last_call_);
  envelope.mutable_call()->set_method(method);
  envelope.mutable_call()->add_arguments()->set_binary(body);
  send(FrameKind::kControl, envelope);
  const std::optional<proto::Reply> answer = reply(last_call_);
  if (!answer.has_value()) return absl::DeadlineExceededError("it was not answered");
  if (!answer->has_error()) return answer->value().binary();
  return absl::Status(static_cast<absl::StatusCode>(answer->error().code()),
                      answer->error().message());
}

void RawPeer::send_note(const std::string& layer, std::string body) {
  proto::Envelope envelope;
  envelope.mutable_note()->set_layer(layer);
  envelope.mutable_note()->set_body(std::move(body));
  send(FrameKind::kControl, envelope);
}

bool RawPeer::wait_receipts() {
  return eventually([this] {
    MutexLock lock(mutex_);
    for (std::size_t lane = 0; lane < internal::kLaneCount; ++lane) {
      for (std::uint64_t number = 1; number <= last_number_[lane]; ++number) {
        const bool is_note = static_cast<Lane>(lane) == Lane::kControl && notes_.count(number) != 0;
        if (!is_note && !receipts_[lane].contains(number)) return false;
      }
    }
    return true;
  });
}

// ---- Receiving.

void RawPeer::on_frames(const std::shared_ptr<internal::Connection>& connection,
                        const std::vector<internal::Frame>& frames) {
  LinkHeader answer;
  bool says_something = false;
  {
    MutexLock lock(mutex_);
    for (const internal::Frame& frame : frames) {
      LinkHeader header;
      const absl::Status read = internal::read_header(frame.header, header);
      ASSERT_TRUE(read.ok()) << read;
      if (header.beat_reply != 0) ++beats_answered_;
      for (std::size_t lane = 0; lane < internal::kLaneCount; ++lane) {
        for (const internal::NumberRange& range : header.received[lane]) {
          note_receipts_locked(range, lane);
        }
      }
      if (header.beat != 0) answer.beat_reply = header.beat;
      says_something = says_something || header.beat != 0 || header.number != 0;
      if (header.kind == FrameKind::kLink) continue;
      using Arrival = internal::FrameNumbers::Arrival;
      const auto lane = static_cast<std::size_t>(internal::lane_of(header.kind));
      if (received_[lane].add(header.number) != Arrival::kNew || header.is_void) continue;
      EXPECT_TRUE(heard_.emplace_back().ParseFromString(frame.envelope));
    }
    if (silent_ || !says_something) return;
    for (std::size_t lane = 0; lane < internal::kLaneCount; ++lane) {
      answer.received[lane] = received_[lane].take_unreported();
    }
  }
  internal::Frame frame;
  frame.header = internal::write_header(answer);
  connection->send(Lane::kControl, std::move(frame)).IgnoreError();
}

void RawPeer::note_receipts_locked(const internal::NumberRange& range, std::size_t lane) {
  for (std::uint64_t number = range.first; number <= range.last; ++number) {
    receipts_[lane].add(number);
  }
}

std::vector<proto::Envelope> RawPeer::heard() const {
  MutexLock lock(mutex_);
  return heard_;
}

int RawPeer::beats_answered() const {
  MutexLock lock(mutex_);
  return beats_answered_;
}

std::optional<proto::Reply> RawPeer::reply(std::uint64_t id) {
  std::optional<proto::Reply> found;
  eventually([&] {
    MutexLock lock(mutex_);
    for (const proto::Envelope& envelope : heard_) {
      if (envelope.has_reply() && envelope.reply().id() == id) found = envelope.reply();
    }
    return found.has_value() || opened_->is_down();
  });
  return found;
}

}  // namespace sinew::testing
