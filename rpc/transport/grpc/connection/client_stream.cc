#include "sinew/rpc/transport/grpc/connection/client_stream.h"

#include <utility>

#include "sinew/rpc/transport/grpc/connection/grpc_status.h"
#include "sinew/rpc/transport/grpc/connection/peer_identity.h"
#include "sinew/rpc/transport/grpc/server/service_names.h"

namespace sinew::internal {

ClientStream::ClientStream(StreamKind kind, std::shared_ptr<StreamEvents> events,
                           std::shared_ptr<TransportCore> core, TransportCore::Hold hold,
                           std::shared_ptr<grpc::Channel> channel)
    : LaneStream(kind, AfterEnd::kReadOn, std::move(events)),
      core_(std::move(core)),
      hold_(std::move(hold)),
      channel_(std::move(channel)),
      context_(std::make_unique<grpc::ClientContext>()) {}

std::shared_ptr<ClientStream> ClientStream::open(StreamKind kind,
                                                 std::shared_ptr<StreamEvents> events,
                                                 std::shared_ptr<TransportCore> core,
                                                 std::shared_ptr<grpc::Channel> channel,
                                                 const std::string& token, Begin begin) {
  TransportCore::Hold hold = core->hold();
  if (!hold) return nullptr;
  std::shared_ptr<ClientStream> stream(new ClientStream(kind, std::move(events), std::move(core),
                                                        std::move(hold), std::move(channel)));
  stream->self_ = stream;
  stream->begin(token, begin);
  return stream;
}

void ClientStream::begin(const std::string& token, Begin begin) {
  starts_later_ = begin == Begin::kWithMessage;
  context_->set_initial_metadata_corked(starts_later_);
  context_->AddMetadata(kLaneMetadata, lane_text(kind()));
  if (!token.empty()) context_->AddMetadata(kTokenMetadata, token);
  // The stub is only a way to make the call: nothing of it is used later.
  call_ = grpc::GenericStub(channel_).PrepareCall(context_.get(), kExchangeMethod,
                                                  core_->poller().queue());
  // Corked, it does nothing, and does not report that either.
  call_->StartCall(static_cast<Completion*>(&started_));
  if (!starts_later_) await_end();
}

// The status is asked for as soon as the call has begun, so that its end is seen whatever else is
// in flight. Also receives the initial metadata: reads leave that alone from here on.
void ClientStream::await_end() { call_->Finish(&status_, static_cast<Completion*>(&ended_)); }

AuthenticatedPeer ClientStream::remote() const {
  return peer_identity(context_->auth_context().get(), context_->peer());
}

std::optional<bool> ClientStream::issue_write(const grpc::ByteBuffer& message, WriteMode mode) {
  if (std::exchange(starts_later_, false)) {
    {
      MutexLock lock(start_mutex_);
      is_started_ = true;
    }
    // In the place of the start.
    call_->Write(message, static_cast<Completion*>(&written_));
    await_end();
    return std::nullopt;
  }
  operations_.fetch_add(1, std::memory_order_relaxed);
  {
    MutexLock lock(start_mutex_);
    if (!is_started_) {
      first_write_ = &message;
      return std::nullopt;
    }
  }
  const auto start = [&] { call_->Write(message, static_cast<Completion*>(&written_)); };
  if (mode == WriteMode::kEndsLater) {
    start();
    return std::nullopt;
  }
  const std::optional<bool> ended = core_->poller().try_now(&written_, start);
  if (ended.has_value()) operation_done();
  return ended;
}

void ClientStream::issue_read(grpc::ByteBuffer* message) {
  operations_.fetch_add(1, std::memory_order_relaxed);
  call_->Read(message, static_cast<Completion*>(&read_));
}

void ClientStream::issue_end(const EndState& state) {
  const bool never_started = std::exchange(starts_later_, false);
  if (!state.status.ok() || never_started) {
    context_->TryCancel();
  } else {
    // The call has failed already, and cancelling it could hide what the other end said. But gRPC
    // keeps the status back until every message before it has been read.
    if (state.unread) drop_messages();
  }
  if (never_started) {
    await_end();
    operation_done();
  }
  operation_done();
}

void ClientStream::on_started(bool) {
  const grpc::ByteBuffer* first_write = nullptr;
  {
    MutexLock lock(start_mutex_);
    is_started_ = true;
    first_write = std::exchange(first_write_, nullptr);
  }
  // Fails if the start has failed.
  if (first_write != nullptr) call_->Write(*first_write, static_cast<Completion*>(&written_));
  operation_done();
}

void ClientStream::on_read(bool ok) {
  read_done(ok);
  operation_done();
}

void ClientStream::on_written(bool ok) {
  write_done(ok);
  operation_done();
}

void ClientStream::operation_done() {
  if (operations_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  const bool said_by_acceptor = context_->GetServerTrailingMetadata().count(kRefusalMetadata) > 0;
  const absl::Status reason = from_grpc(status_);
  // On the transport's own thread: the last operation may have been issue_end(), whose caller does
  // not expect to hear of the end before it returns. And gRPC shuts down with the last channel.
  core_->post([self = std::move(self_), reason, said_by_acceptor]() mutable {
    // Others may hold this object for long; nothing of gRPC must outlive shutdown().
    self->call_.reset();
    self->context_.reset();
    self->done(reason, said_by_acceptor);
    self->channel_.reset();
    self->hold_.reset();
  });
}

}  // namespace sinew::internal
