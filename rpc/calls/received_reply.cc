#include "sinew/rpc/calls/received_reply.h"

#include "c10/core/StreamGuard.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/calls/error_codec.h"
#include "sinew/rpc/calls/message_layers.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

// `error` with the call whose result could not be read.
std::exception_ptr unreadable(const std::exception_ptr& error, const std::string& peer,
                              const std::string& method) {
  ErrorInfo info = describe(error);
  // It may be about the owner of a reference in the result.
  if (info.peer.empty()) info.peer = peer;
  info.method = method;
  info.execution = Execution::kMayHaveRun;
  return make_error(std::move(info));
}

}  // namespace

ReceivedReply::ReceivedReply(std::unique_ptr<Data> data) : data_(std::move(data)) {}
ReceivedReply::ReceivedReply(ReceivedReply&&) noexcept = default;
ReceivedReply& ReceivedReply::operator=(ReceivedReply&&) noexcept = default;
ReceivedReply::~ReceivedReply() = default;

void ReceivedReply::throw_if_error() const {
  const proto::Reply& reply = data_->envelope->reply();
  if (reply.outcome_case() != proto::Reply::kError) return;
  throw RpcError(read_error(reply.error(), data_->route.peer().name, data_->method));
}

ValueReader ReceivedReply::value() {
  if (!data_->layers_told) {
    data_->layers_told = true;
    if (data_->has_layers()) {
      data_->services_kept = data_->weak_services.lock();
      if (data_->services_kept == nullptr) {
        throw RpcError(ErrorCode::kCancelled,
                       "the worker that made the call is gone, and its layers have a part in "
                       "reading the result");
      }
    }
    receive_layers(data_->route, Extension::MessageKind::kReply,
                   data_->envelope->reply().attachments(), data_->context);
  }
  return ValueReader(data_->envelope->reply().value(), data_->context,
                     ValuePath{nullptr, "result"});
}

void ReceivedReply::throw_unreadable(const std::exception_ptr& error) const {
  std::rethrow_exception(unreadable(error, data_->route.peer().name, data_->method));
}

bool ReceivedReply::must_be_read_now() const {
  return data_->envelope->reply().carries_references();
}

void ReceivedReply::read_soon(std::shared_ptr<ReceivedReply> reply,
                              absl::AnyInvocable<void(ReceivedReply&) &&> read,
                              absl::AnyInvocable<void(std::exception_ptr) &&> done) {
  Executor& executor = *reply->data_->route.services().executor();
  executor.post(
      [reply = std::move(reply), read = std::move(read), done = std::move(done)]() mutable {
        const c10::MultiStreamGuard on_streams(reply->data_->streams);
        try {
          std::move(read)(*reply);
        } catch (...) {
          std::move(done)(std::current_exception());
          return;
        }
        when_arrived(reply, std::move(done));
      });
}

void ReceivedReply::when_arrived(const std::shared_ptr<ReceivedReply>& reply,
                                 absl::AnyInvocable<void(std::exception_ptr) &&> done) {
  MessageRoute& route = reply->data_->route;
  if (auto* devices = route.device_part()) devices->accept_transfers(route);
  std::vector<Future<void>> waits = route.take_waits();
  if (waits.empty()) {
    std::move(done)(nullptr);
    return;
  }
  // shared_ptr: callbacks of futures are copied.
  auto shared_done = std::make_shared<decltype(done)>(std::move(done));
  collect_all(std::move(waits))
      .on_done([shared_done, peer = route.peer().name, method = reply->data_->method,
                streams = reply->data_->streams](const Future<void>& all) {
        // There the value is ready, and not behind what other threads do.
        const c10::MultiStreamGuard on_streams(streams);
        const std::exception_ptr error = all.error();
        std::move (*shared_done)(error == nullptr ? nullptr : unreadable(error, peer, method));
      });
}

}  // namespace sinew::internal
