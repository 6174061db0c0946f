#include "sinew/rpc/transport/grpc/internal/server_stream.h"

#include <utility>

#include "sinew/rpc/transport/grpc/internal/grpc_status.h"
#include "sinew/rpc/transport/grpc/internal/stream_metadata.h"

namespace sinew::internal {
namespace {

class RefusedStream final : public ExchangeReactor {
 public:
  explicit RefusedStream(grpc::Status status) { Finish(std::move(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

std::shared_ptr<ServerStream> ServerStream::accept(StreamKind kind,
                                                   std::shared_ptr<StreamEvents> events,
                                                   TransportCore::Hold hold,
                                                   grpc::CallbackServerContext* context) {
  std::shared_ptr<ServerStream> stream(
      new ServerStream(kind, std::move(events), std::move(hold), context));
  stream->self_ = stream;
  return stream;
}

void ServerStream::issue_end(const EndState& state) {
  if (!state.status.ok()) {
    context_->AddTrailingMetadata(kRefusalMetadata, "1");
    // A status waits behind the message before it, and a peer that has stopped reading would hold
    // up both.
    if (state.write_in_flight) context_->TryCancel();
  }
  Finish(to_grpc(state.status));
}

void ServerStream::OnDone() {
  const std::shared_ptr<ServerStream> self = std::move(self_);
  done(absl::OkStatus(), false);
  hold_.reset();
}

ExchangeReactor* refuse_exchange(grpc::CallbackServerContext* context, const absl::Status& status) {
  context->AddTrailingMetadata(kRefusalMetadata, "1");
  return new RefusedStream(to_grpc(status));
}

}  // namespace sinew::internal
