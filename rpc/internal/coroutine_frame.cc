#include "sinew/rpc/internal/coroutine_frame.h"

#include <utility>

#include "ATen/ThreadLocalState.h"
#include "sinew/rpc/base/internal/queued_work.h"

namespace sinew::internal {

/// That of the calling thread when it is made.
struct CoroutineFrame::ThreadState {
  void install() {
    ThreadContext::exchange(std::move(context));
    at::ThreadLocalState::setThreadLocalState(modes);
    if (work != nullptr) work->precede_this_thread();
  }

  std::shared_ptr<const ThreadContext> context = ThreadContext::current();
  at::ThreadLocalState modes;
  // Only of a coroutine that leaves: the thread goes on where it was.
  std::shared_ptr<const QueuedWork> work;
};

CoroutineFrame::CoroutineFrame() : outer_(std::make_unique<ThreadState>()) {}

CoroutineFrame::~CoroutineFrame() = default;

void CoroutineFrame::leave_thread() {
  own_ = std::make_unique<ThreadState>();
  own_->work = queued_work(QueuedOn::kAllStreams);
  std::exchange(outer_, nullptr)->install();
}

void CoroutineFrame::enter_thread() {
  outer_ = std::make_unique<ThreadState>();
  std::exchange(own_, nullptr)->install();
}

void CoroutineFrame::leave_thread_for_good() { std::exchange(outer_, nullptr)->install(); }

}  // namespace sinew::internal
