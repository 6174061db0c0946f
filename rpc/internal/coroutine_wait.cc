#include "sinew/rpc/internal/coroutine_wait.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {

CoroutineWait::CoroutineWait(FutureCore& future, void* coroutine, Resume resume,
                             CoroutineFrame* frame)
    : future_(future),
      coroutine_(coroutine),
      resume_(resume),
      frame_(frame),
      context_(ThreadContext::current()),
      runner_(Executor::current() == nullptr ? future.runner() : FutureCore::current_runner()) {}

bool CoroutineWait::suspend() {
  const std::shared_ptr<CoroutineWait> self = shared_from_this();
  watch_call();
  future_.add_callback([self](Reader reader) {
    // Before the coroutine goes on: it may take the value, for which it must be the only reader.
    { const Reader dropped = std::move(reader); }
    self->end(Cause::kFutureDone);
  });
  if (frame_ != nullptr) frame_->leave_thread();
  {
    MutexLock lock(mutex_);
    if (!cause_.has_value()) {
      suspended_ = true;
      return true;
    }
  }
  if (frame_ != nullptr) frame_->enter_thread();
  return false;
}

void CoroutineWait::watch_call() {
  if (context_ == nullptr) return;
  const auto* const call = dynamic_cast<const Invocation*>(context_->served());
  if (call == nullptr) return;
  const std::shared_ptr<CoroutineWait> self = shared_from_this();
  if (context_->deadline() != Clock::TimePoint::max()) {
    services_ = call->weak_services();
    if (const auto services = services_.lock()) {
      alarm_ =
          services->timers().run_at(context_->deadline(), [self] { self->end(Cause::kOutOfTime); });
    }
  }
  cancellation_ = call->cancellation();
  notice_ = cancellation_.notify([self] { self->end(Cause::kCancelled); });
}

void CoroutineWait::end(Cause cause) {
  {
    MutexLock lock(mutex_);
    if (cause_.has_value()) return;
    cause_ = cause;
    if (!suspended_) return;
  }
  resume_soon(cause);
}

void CoroutineWait::resume_soon(Cause cause) {
  // A callback of the future runs where its coroutine may; a timer and a thread that cancels must
  // not run user code.
  const bool is_here = cause == Cause::kFutureDone && runner_ == FutureCore::current_runner();
  if (!is_here && runner_ != nullptr &&
      runner_->post([self = shared_from_this()] { self->resume_here(); })) {
    return;
  }
  resume_here();
}

// In the call that it serves, once that has the turn at its object again.
void CoroutineWait::resume_here() {
  const std::shared_ptr<CoroutineWait> self = shared_from_this();
  const auto* const call =
      context_ == nullptr ? nullptr : dynamic_cast<const Invocation*>(context_->served());
  if (call == nullptr) return resume_now();
  const auto resume = [self, call] {
    self->resume_now();
    call->suspended_in_turn();
  };
  if (call->resume_in_turn(resume)) resume();
}

void CoroutineWait::resume_now() {
  if (frame_ == nullptr) {
    const ThreadContext::Scope scope(context_);
    return resume_(coroutine_);
  }
  frame_->enter_thread();
  resume_(coroutine_);
}

void CoroutineWait::resumed() {
  cancellation_.forget(notice_);
  if (alarm_ != 0) {
    if (const auto services = services_.lock()) services->timers().cancel(alarm_);
  }
  Cause cause;
  {
    MutexLock lock(mutex_);
    cause = *cause_;
  }
  if (cause == Cause::kFutureDone) return;
  const std::string where = absl::StrCat(" while its coroutine waited for a future; call chain: ",
                                         context_->describe_chain());
  if (cause == Cause::kCancelled) {
    throw RpcError(ErrorCode::kCancelled, absl::StrCat("the call was cancelled", where));
  }
  throw RpcError(ErrorCode::kDeadlineExceeded,
                 absl::StrCat("the time of the call was over", where));
}

}  // namespace sinew::internal
