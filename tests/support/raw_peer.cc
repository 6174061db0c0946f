#include "sinew/tests/support/raw_peer.h"

#include <algorithm>
#include <utility>

#include "sinew/rpc/link/hello.h"
#include "sinew/rpc/transport/grpc/grpc_transport.h"
#include "sinew/tests/support/eventually.h"
#include "sinew/tests/support/reference_messages.h"

namespace sinew::testing {

using internal::Lane;

RawPeer::RawPeer(WorkerInfo claims, Credentials credentials) : claims_(std::move(claims)) {
  internal::GrpcTransportOptions options;
  options.credentials = std::move(credentials);
  transport_ = internal::make_grpc_transport(std::move(options));
  acceptor_.hello = internal::write_hello({claims_, {}, "default", "", 0});
  const absl::Status started = transport_->start(&acceptor_, nullptr);
  EXPECT_TRUE(started.ok()) << started;
}

RawPeer::~RawPeer() { transport_->shutdown(); }

absl::Status RawPeer::connect(const std::string& address) {
  const std::string hello =
      internal::write_hello({claims_, {}, "default", transport_->address(), 0});
  opened_ = std::make_shared<internal::RecordingHandler>();
  connection_ = transport_->connect(address, hello, "", opened_);
  eventually([this] { return opened_->is_up() || opened_->is_down(); });
  return opened_->is_up() ? absl::OkStatus() : opened_->reason();
}

void RawPeer::send(const proto::Envelope& envelope, Lane lane) {
  internal::Frame frame;
  frame.envelope = envelope.SerializeAsString();
  const absl::Status sent = connection_->send(lane, std::move(frame));
  // Unavailable: the worker has closed the connection, as it may.
  EXPECT_TRUE(sent.ok() || absl::IsUnavailable(sent)) << sent;
}

std::vector<std::string> RawPeer::heard() const {
  std::vector<std::string> envelopes;
  for (const Lane lane : {Lane::kControl, Lane::kCalls}) {
    for (std::string& envelope : opened_->envelopes(lane)) envelopes.push_back(std::move(envelope));
  }
  return envelopes;
}

bool RawPeer::deliver(proto::LedgerMessage message) {
  message.set_sequence(++last_sent_);
  proto::LedgerNote note;
  *note.add_messages() = std::move(message);
  proto::Envelope envelope;
  envelope.mutable_note()->set_layer("rref");
  envelope.mutable_note()->set_body(note.SerializeAsString());
  // An acknowledgement is dropped while the worker has no connection to this peer: ask again.
  auto next = std::chrono::steady_clock::now();
  return eventually([&] {
    if (std::chrono::steady_clock::now() >= next) {
      send(envelope);
      next += std::chrono::milliseconds(50);
    }
    collect();
    return acknowledged_ >= last_sent_;
  });
}

std::optional<proto::LedgerMessage> RawPeer::receive() {
  const bool came = eventually([this] {
    collect();
    return !received_.empty();
  });
  if (!came) return std::nullopt;
  proto::LedgerMessage first = std::move(received_.front());
  received_.erase(received_.begin());
  return first;
}

void RawPeer::collect() {
  for (std::size_t i = 0; i < acceptor_.count(); ++i) {
    for (const internal::Frame& frame : acceptor_.handler(i)->take_frames(Lane::kControl)) {
      const proto::LedgerNote note = ledger_note_in(Lane::kControl, frame.envelope);
      acknowledged_ = std::max(acknowledged_, note.ack().cumulative());
      for (const proto::LedgerMessage& message : note.messages()) {
        if (message.sequence() <= last_received_) continue;  // repeated: nobody acknowledges here
        last_received_ = message.sequence();
        received_.push_back(message);
      }
    }
  }
}

}  // namespace sinew::testing
