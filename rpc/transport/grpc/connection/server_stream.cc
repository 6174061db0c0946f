#include "sinew/rpc/transport/grpc/connection/server_stream.h"

#include <utility>

#include "sinew/rpc/transport/grpc/server/service_names.h"

namespace sinew::internal {

std::shared_ptr<ServerStream> ServerStream::accept(StreamKind kind,
                                                   std::shared_ptr<StreamEvents> events,
                                                   std::unique_ptr<ServerCall> call) {
  std::shared_ptr<ServerStream> stream(new ServerStream(kind, std::move(events), std::move(call)));
  stream->self_ = stream;
  stream->call_->bind(stream.get());
  return stream;
}

std::optional<bool> ServerStream::issue_write(const grpc::ByteBuffer& message, WriteMode mode) {
  if (mode == WriteMode::kMayEndNow) return call_->write_now(message);
  call_->write(message);
  return std::nullopt;
}

void ServerStream::issue_end(const EndState& state) {
  if (!state.status.ok()) {
    call_->context().AddTrailingMetadata(kRefusalMetadata, "1");
    // A status waits behind the message before it, and a peer that has stopped reading would hold
    // up both.
    if (state.write_in_flight) call_->context().TryCancel();
  }
  call_->finish(state.status);
}

void ServerStream::on_done() {
  const std::shared_ptr<ServerStream> self = std::move(self_);
  done(absl::OkStatus(), false);
  // Others may hold this object for long; nothing of gRPC must outlive shutdown().
  call_.reset();
}

void refuse_exchange(std::unique_ptr<ServerCall> call, const absl::Status& status) {
  call->context().AddTrailingMetadata(kRefusalMetadata, "1");
  ServerCall::refuse(std::move(call), status);
}

}  // namespace sinew::internal
