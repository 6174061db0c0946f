#include "sinew/rpc/transport/grpc/server/server_call.h"

#include <utility>

#include "sinew/rpc/transport/grpc/connection/grpc_status.h"

namespace sinew::internal {
namespace {

class Refusal final : public ServerCallEvents {
 public:
  static void of(std::unique_ptr<ServerCall> call, const absl::Status& status) {
    auto* refusal = new Refusal;
    refusal->call_ = std::move(call);
    refusal->call_->bind(refusal);
    refusal->call_->finish(status);
  }

 private:
  void on_read_done(bool) override {}
  void on_write_done(bool) override {}
  void on_cancelled() override {}
  void on_done() override { delete this; }

  std::unique_ptr<ServerCall> call_;
};

}  // namespace

ServerCall::ServerCall(TransportCore::Hold hold, Poller& poller, Arrival on_arrival)
    : hold_(std::move(hold)), poller_(poller), on_arrival_(std::move(on_arrival)) {
  context_.AsyncNotifyWhenDone(static_cast<Completion*>(&closed_));
}

void ServerCall::await(TransportCore::Hold hold, Poller& poller, grpc::AsyncGenericService& service,
                       Arrival on_arrival) {
  auto* call = new ServerCall(std::move(hold), poller, std::move(on_arrival));
  service.RequestCall(&call->context_, &call->stream_, poller.queue(), poller.queue(),
                      static_cast<Completion*>(&call->arrived_));
}

void ServerCall::on_arrived(bool ok) {
  std::unique_ptr<ServerCall> self(this);
  if (!ok) return;
  Arrival on_arrival = std::move(on_arrival_);
  std::move(on_arrival)(std::move(self));
}

void ServerCall::refuse(std::unique_ptr<ServerCall> call, const absl::Status& status) {
  Refusal::of(std::move(call), status);
}

std::string ServerCall::metadata(const char* key) const {
  const auto& all = context_.client_metadata();
  const auto found = all.find(key);
  return found == all.end() ? "" : std::string(found->second.data(), found->second.size());
}

void ServerCall::bind(ServerCallEvents* events) {
  {
    MutexLock lock(mutex_);
    events_.store(events);
    if (!cancelled_) return;
  }
  events->on_cancelled();
}

void ServerCall::read(grpc::ByteBuffer* message) {
  operations_.fetch_add(1, std::memory_order_relaxed);
  stream_.Read(message, static_cast<Completion*>(&read_));
}

void ServerCall::write(const grpc::ByteBuffer& message) {
  operations_.fetch_add(1, std::memory_order_relaxed);
  stream_.Write(message, static_cast<Completion*>(&written_));
}

std::optional<bool> ServerCall::write_now(const grpc::ByteBuffer& message) {
  operations_.fetch_add(1, std::memory_order_relaxed);
  const std::optional<bool> ended = poller_.try_now(
      &written_, [&] { stream_.Write(message, static_cast<Completion*>(&written_)); });
  if (ended.has_value()) operation_done();
  return ended;
}

void ServerCall::finish(const absl::Status& status) {
  stream_.Finish(to_grpc(status), static_cast<Completion*>(&finished_));
}

void ServerCall::write_and_finish(const grpc::ByteBuffer& message) {
  stream_.WriteAndFinish(message, grpc::WriteOptions(), grpc::Status::OK,
                         static_cast<Completion*>(&finished_));
}

void ServerCall::on_closed(bool) {
  ServerCallEvents* events = nullptr;
  if (context_.IsCancelled()) {
    MutexLock lock(mutex_);
    cancelled_ = true;
    events = events_.load();
  }
  if (events != nullptr) events->on_cancelled();
  operation_done();
}

void ServerCall::on_read(bool ok) {
  events_.load()->on_read_done(ok);
  operation_done();
}

void ServerCall::on_written(bool ok) {
  events_.load()->on_write_done(ok);
  operation_done();
}

void ServerCall::operation_done() {
  if (operations_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  events_.load()->on_done();
}

}  // namespace sinew::internal
