#include "sinew/rpc/internal/coroutine_frame.h"

#include <utility>

#include "ATen/ThreadLocalState.h"

namespace sinew::internal {

/// That of the calling thread when it is made.
struct CoroutineFrame::ThreadState {
  void install() {
    ThreadContext::exchange(std::move(context));
    at::ThreadLocalState::setThreadLocalState(modes);
  }

  std::shared_ptr<const ThreadContext> context = ThreadContext::current();
  at::ThreadLocalState modes;
};

CoroutineFrame::CoroutineFrame() : outer_(std::make_unique<ThreadState>()) {}

CoroutineFrame::~CoroutineFrame() = default;

void CoroutineFrame::leave_thread() {
  own_ = std::make_unique<ThreadState>();
  std::exchange(outer_, nullptr)->install();
}

void CoroutineFrame::enter_thread() {
  outer_ = std::make_unique<ThreadState>();
  std::exchange(own_, nullptr)->install();
}

void CoroutineFrame::leave_thread_for_good() { std::exchange(outer_, nullptr)->install(); }

}  // namespace sinew::internal
