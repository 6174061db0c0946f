// The unary calls of InprocCore.

#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/transport/inproc/inproc_client.h"
#include "sinew/rpc/transport/inproc/internal/inproc_core.h"

namespace sinew::internal {
namespace {

/// The worker's view of a call.
class InprocUnaryCall final : public UnaryCall {
 public:
  InprocUnaryCall(std::shared_ptr<InprocCore> core, std::shared_ptr<InprocUnaryState> state,
                  Frame request)
      : core_(std::move(core)), state_(std::move(state)), request_(std::move(request)) {}
  ~InprocUnaryCall() override {
    core_->finish_unary(state_, absl::InternalError("the worker dropped the call unanswered"), {});
  }

  const AuthenticatedPeer& remote() const override { return state_->client; }
  // Its clients are tests, which have none.
  const Metadata& metadata() const override { return metadata_; }
  Frame& request() override { return request_; }
  std::chrono::nanoseconds time_left() const override {
    if (core_->mode() == InprocMode::kStepped ||
        state_->time_left == std::chrono::nanoseconds::max()) {
      return state_->time_left;
    }
    return state_->time_left - (std::chrono::steady_clock::now() - state_->started);
  }
  void notify_on_cancel(absl::AnyInvocable<void() &&> on_cancel) override {
    core_->notify_unary_cancelled(state_, std::move(on_cancel));
  }
  void reply(Frame reply) override {
    core_->finish_unary(state_, absl::OkStatus(), std::move(reply));
  }
  void fail(const absl::Status& status) override {
    // A new one, and moved from there on: what several threads share of a status is counted by the
    // packaged Abseil, which ThreadSanitizer cannot see.
    absl::Status own = status.ok() ? absl::InternalError("the worker failed the call with OK")
                                   : absl::Status(status.code(), status.message());
    status.ForEachPayload(
        [&own](absl::string_view url, const absl::Cord& payload) { own.SetPayload(url, payload); });
    core_->finish_unary(state_, std::move(own), {});
  }

 private:
  const std::shared_ptr<InprocCore> core_;
  const std::shared_ptr<InprocUnaryState> state_;
  const Metadata metadata_;
  Frame request_;
};

/// The client's view of a call.
class ClientCall final : public InprocClientCall {
 public:
  ClientCall(std::shared_ptr<InprocCore> core, std::shared_ptr<InprocUnaryState> state)
      : core_(std::move(core)), state_(std::move(state)) {}
  ~ClientCall() override { cancel(); }

  absl::StatusOr<Frame> wait(std::chrono::nanoseconds timeout) override {
    return core_->wait_unary(state_, timeout);
  }
  bool finished() const override { return core_->unary_finished(state_); }
  void cancel() final { core_->abort_unary(state_, absl::CancelledError("the client gave up")); }

 private:
  const std::shared_ptr<InprocCore> core_;
  const std::shared_ptr<InprocUnaryState> state_;
};

}  // namespace

std::shared_ptr<InprocClientCall> start_inproc_unary_call(
    const std::shared_ptr<InprocNetwork>& network, std::string_view address, Frame request,
    AuthenticatedPeer client, std::chrono::nanoseconds time_left) {
  auto state = std::make_shared<InprocUnaryState>();
  state->client = std::move(client);
  state->request = std::move(request);
  state->time_left = time_left;
  state->started = std::chrono::steady_clock::now();
  network->core()->start_unary(state, std::string(address));
  return std::make_shared<ClientCall>(network->core(), state);
}

void InprocCore::start_unary(const std::shared_ptr<InprocUnaryState>& call,
                             const std::string& address) {
  MutexLock lock(mutex_);
  auto listener = listeners_.find(address);
  if (listener == listeners_.end() || listener->second->unary_handler == nullptr) {
    call->finished = true;
    call->status = listener == listeners_.end()
                       ? absl::UnavailableError(absl::StrCat("nothing listens at ", address))
                       : absl::UnimplementedError(absl::StrCat(address, " takes no unary calls"));
    return;
  }
  call->endpoint = listener->second;
  call->endpoint->unary_calls.insert(call);
  schedule_unary_locked(call, InprocEvent::Kind::kUnaryCall);
}

void InprocCore::finish_unary(const std::shared_ptr<InprocUnaryState>& call, absl::Status status,
                              Frame answer) {
  MutexLock lock(mutex_);
  if (call->finished) return;
  call->finished = true;
  call->endpoint->unary_calls.erase(call);
  call->status = std::move(status);
  call->answer = std::move(answer);
  call->changed.notify_all();
}

void InprocCore::abort_unary(const std::shared_ptr<InprocUnaryState>& call, absl::Status status) {
  MutexLock lock(mutex_);
  if (call->finished) return;
  call->finished = true;
  call->aborted = true;
  call->endpoint->unary_calls.erase(call);
  call->status = std::move(status);
  call->changed.notify_all();
  if (call->on_cancel) schedule_unary_locked(call, InprocEvent::Kind::kUnaryCancel);
}

void InprocCore::schedule_unary_locked(const std::shared_ptr<InprocUnaryState>& call,
                                       InprocEvent::Kind kind) {
  InprocPendingEvent event;
  event.kind = kind;
  event.unary = call;
  schedule_locked(call->endpoint, std::move(event));
}

void InprocCore::notify_unary_cancelled(const std::shared_ptr<InprocUnaryState>& call,
                                        absl::AnyInvocable<void() &&> on_cancel) {
  MutexLock lock(mutex_);
  if (call->finished && !call->aborted) return;
  call->on_cancel = std::move(on_cancel);
  if (call->aborted) schedule_unary_locked(call, InprocEvent::Kind::kUnaryCancel);
}

absl::StatusOr<Frame> InprocCore::wait_unary(const std::shared_ptr<InprocUnaryState>& call,
                                             std::chrono::nanoseconds timeout) {
  const auto now = std::chrono::steady_clock::now();
  // Not now + timeout, which overflows for a timeout that means no limit.
  const auto deadline =
      timeout > std::chrono::hours(24) ? now + std::chrono::hours(24) : now + timeout;
  MutexLock lock(mutex_);
  while (!call->finished) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError("no answer to the unary call yet");
    }
    call->changed.wait_until(mutex_, deadline);
  }
  if (!call->status.ok()) return std::move(call->status);
  return std::move(call->answer);
}

bool InprocCore::unary_finished(const std::shared_ptr<InprocUnaryState>& call) {
  MutexLock lock(mutex_);
  return call->finished;
}

void InprocCore::run_unary_call(const std::shared_ptr<InprocUnaryState>& call) {
  UnaryHandler* handler = nullptr;
  Frame request;
  {
    MutexLock lock(mutex_);
    if (call->finished) return;
    handler = call->endpoint->unary_handler;
    request = std::move(call->request);
  }
  handler->on_unary_call(
      std::make_unique<InprocUnaryCall>(shared_from_this(), call, std::move(request)));
}

void InprocCore::run_unary_cancel(const std::shared_ptr<InprocUnaryState>& call) {
  absl::AnyInvocable<void() &&> on_cancel;
  {
    MutexLock lock(mutex_);
    on_cancel = std::exchange(call->on_cancel, nullptr);
  }
  if (on_cancel) std::move(on_cancel)();
}

}  // namespace sinew::internal
