#pragma once

#include <memory>

#include "sinew/rpc/base/internal/thread_context.h"

namespace sinew::internal {

/// What goes with a coroutine from thread to thread, as a stack would take it along: the call that
/// is being served and the autograd context (ThreadContext), and LibTorch's modes (no-grad,
/// inference). What it does on another thread comes after what it had queued on the streams of
/// devices. Base of the promise types of coroutines that return a Future.
///
/// Between two suspensions it holds what the thread had before, so that the code that started or
/// resumed the coroutine finds its thread as it was, also where the coroutine has guards open.
class CoroutineFrame {
 public:
  /// When the coroutine is called.
  CoroutineFrame();
  ~CoroutineFrame();
  CoroutineFrame(const CoroutineFrame&) = delete;
  CoroutineFrame& operator=(const CoroutineFrame&) = delete;

  /// Around a suspension; the two may run on different threads.
  void leave_thread();
  void enter_thread();
  /// At the end, instead of leave_thread().
  void leave_thread_for_good();

 private:
  struct ThreadState;
  std::unique_ptr<ThreadState> outer_;
  std::unique_ptr<ThreadState> own_;
};

}  // namespace sinew::internal
