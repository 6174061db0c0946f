#include "sinew/rpc/transport/grpc/internal/client_stream.h"

#include <utility>

#include "grpcpp/generic/generic_stub.h"
#include "sinew/rpc/transport/grpc/internal/grpc_status.h"
#include "sinew/rpc/transport/grpc/internal/peer_identity.h"
#include "sinew/rpc/transport/grpc/internal/stream_metadata.h"

namespace sinew::internal {

ClientStream::ClientStream(StreamKind kind, std::shared_ptr<StreamEvents> events,
                           std::shared_ptr<TransportCore> core,
                           std::shared_ptr<grpc::Channel> channel)
    : LaneStream(kind, AfterEnd::kReadOn, std::move(events)),
      core_(std::move(core)),
      hold_(core_->hold()),
      channel_(std::move(channel)),
      context_(std::make_unique<grpc::ClientContext>()) {}

ClientStream::~ClientStream() = default;

std::shared_ptr<ClientStream> ClientStream::open(StreamKind kind,
                                                 std::shared_ptr<StreamEvents> events,
                                                 std::shared_ptr<TransportCore> core,
                                                 std::shared_ptr<grpc::Channel> channel,
                                                 const std::string& token) {
  std::shared_ptr<ClientStream> stream(
      new ClientStream(kind, std::move(events), std::move(core), std::move(channel)));
  stream->self_ = stream;
  stream->context_->AddMetadata(kLaneMetadata, lane_text(kind));
  if (!token.empty()) stream->context_->AddMetadata(kTokenMetadata, token);
  // The stub is only a way to make the call: nothing of it is used later.
  grpc::GenericStub(stream->channel_)
      .PrepareBidiStreamingCall(stream->context_.get(), kExchangeMethod, grpc::StubOptions(),
                                stream.get());
  // Operations come from any thread, so the call must not end by itself in between; issue_end()
  // removes the hold.
  stream->AddHold();
  stream->StartCall();
  return stream;
}

AuthenticatedPeer ClientStream::remote() const {
  return peer_identity(context_->auth_context().get(), context_->peer());
}

void ClientStream::issue_end(const EndState& state) {
  if (!state.status.ok()) {
    context_->TryCancel();
  } else {
    // The call has failed already, and cancelling it could hide what the other end said. But gRPC
    // keeps the status back until every message before it has been read.
    if (state.unread) drop_messages();
  }
  RemoveHold();
}

void ClientStream::OnDone(const grpc::Status& status) {
  const std::shared_ptr<ClientStream> self = std::move(self_);
  const bool said_by_acceptor = context_->GetServerTrailingMetadata().count(kRefusalMetadata) > 0;
  const absl::Status reason = from_grpc(status);
  // Others may hold this object for long; nothing of gRPC must outlive shutdown().
  context_.reset();
  done(reason, said_by_acceptor);
  // gRPC ends its callback threads with the last channel that used them, and waits for them: a
  // channel must not go away on one of them, as this one is.
  core_->post([channel = std::move(channel_), hold = std::move(hold_)]() mutable {
    channel.reset();
    hold.reset();
  });
}

}  // namespace sinew::internal
