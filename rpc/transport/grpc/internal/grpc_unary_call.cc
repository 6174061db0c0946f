#include "sinew/rpc/transport/grpc/internal/grpc_unary_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/transport/grpc/internal/grpc_status.h"
#include "sinew/rpc/transport/grpc/internal/packet_codec.h"
#include "sinew/rpc/transport/grpc/internal/peer_identity.h"

namespace sinew::internal {
namespace {

class RefusedCall final : public grpc::ServerUnaryReactor {
 public:
  explicit RefusedCall(const absl::Status& status) { Finish(to_grpc(status)); }
  void OnDone() override { delete this; }
};

/// The worker's side.
class GrpcUnaryCall final : public UnaryCall {
 public:
  GrpcUnaryCall(std::shared_ptr<GrpcUnaryReactor> reactor, Frame request)
      : reactor_(std::move(reactor)), request_(std::move(request)) {}
  ~GrpcUnaryCall() override {
    reactor_->answer(absl::InternalError("the worker dropped the call unanswered"), {});
  }

  const AuthenticatedPeer& remote() const override { return reactor_->remote(); }
  Frame& request() override { return request_; }
  std::chrono::nanoseconds time_left() const override { return reactor_->time_left(); }
  void notify_on_cancel(absl::AnyInvocable<void() &&> on_cancel) override {
    reactor_->notify_on_cancel(std::move(on_cancel));
  }
  void reply(Frame reply) override { reactor_->answer(absl::OkStatus(), std::move(reply)); }
  void fail(const absl::Status& status) override {
    reactor_->answer(
        status.ok() ? absl::InternalError("the worker failed the call with OK") : status, {});
  }

 private:
  const std::shared_ptr<GrpcUnaryReactor> reactor_;
  Frame request_;
};

}  // namespace

void UnaryCalls::add(std::shared_ptr<GrpcUnaryReactor> call) {
  absl::MutexLock lock(&mutex_);
  calls_.insert(std::move(call));
}

void UnaryCalls::remove(const std::shared_ptr<GrpcUnaryReactor>& call) {
  absl::MutexLock lock(&mutex_);
  calls_.erase(call);
}

void UnaryCalls::fail_all(const absl::Status& status) {
  absl::flat_hash_set<std::shared_ptr<GrpcUnaryReactor>> calls;
  {
    absl::MutexLock lock(&mutex_);
    calls = calls_;
  }
  for (const auto& call : calls) call->answer(status, {});
}

GrpcUnaryReactor::GrpcUnaryReactor(std::shared_ptr<TransportCore> core,
                                   std::shared_ptr<UnaryCalls> calls, TransportCore::Hold hold,
                                   grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
    : core_(std::move(core)),
      calls_(std::move(calls)),
      deadline_(context->deadline()),
      remote_(peer_identity(context->auth_context().get(), context->peer())),
      response_(response),
      hold_(std::move(hold)) {}

grpc::ServerUnaryReactor* GrpcUnaryReactor::start(const std::shared_ptr<TransportCore>& core,
                                                  std::shared_ptr<UnaryCalls> calls,
                                                  UnaryHandler* handler,
                                                  grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  if (handler == nullptr) {
    return new RefusedCall(absl::UnimplementedError("this worker takes no unary calls"));
  }
  TransportCore::Hold hold = core->hold();
  if (!hold) return new RefusedCall(absl::UnavailableError("the worker shuts down"));
  if (request->Length() > core->options().tuning.max_unary_bytes) {
    return new RefusedCall(absl::ResourceExhaustedError(
        absl::StrCat("a request of ", request->Length(), " bytes is larger than the limit of ",
                     core->options().tuning.max_unary_bytes, " bytes")));
  }
  absl::StatusOr<Frame> frame = decode_unary(*request, core->limits());
  if (!frame.ok()) return new RefusedCall(frame.status());
  std::shared_ptr<GrpcUnaryReactor> reactor(
      new GrpcUnaryReactor(core, std::move(calls), std::move(hold), context, response));
  reactor->calls_->add(reactor);
  handler->on_unary_call(std::make_unique<GrpcUnaryCall>(reactor, *std::move(frame)));
  return reactor.get();
}

std::chrono::nanoseconds GrpcUnaryReactor::time_left() const {
  if (deadline_ == std::chrono::system_clock::time_point::max()) {
    return std::chrono::nanoseconds::max();
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(deadline_ -
                                                              std::chrono::system_clock::now());
}

void GrpcUnaryReactor::notify_on_cancel(absl::AnyInvocable<void() &&> on_cancel) {
  {
    absl::MutexLock lock(&mutex_);
    if (!cancelled_) {
      if (!answered_) on_cancel_ = std::move(on_cancel);
      return;
    }
  }
  // The caller may hold locks that the callback wants.
  core_->post([on_cancel = std::move(on_cancel)]() mutable { std::move(on_cancel)(); });
}

void GrpcUnaryReactor::answer(const absl::Status& status, Frame reply) {
  // Outlives the lock: what it holds is destroyed without it.
  absl::AnyInvocable<void() &&> on_cancel;
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(answered_, true)) return;
    on_cancel = std::exchange(on_cancel_, nullptr);
  }
  if (status.ok()) *response_ = encode_unary(reply);
  Finish(to_grpc(status));
}

void GrpcUnaryReactor::OnCancel() {
  absl::AnyInvocable<void() &&> on_cancel;
  {
    absl::MutexLock lock(&mutex_);
    if (answered_) return;
    cancelled_ = true;
    on_cancel = std::exchange(on_cancel_, nullptr);
  }
  if (on_cancel) std::move(on_cancel)();
}

void GrpcUnaryReactor::OnDone() {
  const std::shared_ptr<GrpcUnaryReactor> self = shared_from_this();
  calls_->remove(self);
  // Last: the user's side of the call may outlive shutdown(), and touches nothing of gRPC any more.
  hold_.reset();
}

}  // namespace sinew::internal
