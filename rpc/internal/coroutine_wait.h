#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/future_state.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/internal/thread_context.h"
#include "sinew/rpc/cancellation.h"
#include "sinew/rpc/internal/coroutine_frame.h"

namespace sinew::internal {

class WorkerServices;

/// One wait of a coroutine: until a future is done, or the call that it serves is cancelled or out
/// of time, whichever comes first. Knows nothing of C++20.
class CoroutineWait : public std::enable_shared_from_this<CoroutineWait> {
 public:
  using Resume = void (*)(void* coroutine);

  /// `frame` is null for coroutines of other kinds, which keep their own thread state or none. The
  /// future must live until resumed() has returned.
  CoroutineWait(FutureCore& future, void* coroutine, Resume resume, CoroutineFrame* frame);

  /// Begins to wait. False if the wait is over already: then the coroutine goes on as if it had
  /// been resumed. True: it is resumed once, on the executor that it has run on, or that the future
  /// belongs to; inline where there is none. From then on the calling thread must not touch it.
  bool suspend();
  /// By the coroutine that goes on. Throws RpcError kCancelled or kDeadlineExceeded if the call has
  /// ended before the future was done.
  void resumed();

 private:
  enum class Cause { kFutureDone, kCancelled, kOutOfTime };

  void watch_call();
  void end(Cause cause);
  void resume_soon(Cause cause);
  void resume_here();
  void resume_now();

  FutureCore& future_;
  void* const coroutine_;
  const Resume resume_;
  CoroutineFrame* const frame_;
  const std::shared_ptr<const ThreadContext> context_;
  const std::shared_ptr<TaskRunner> runner_;

  // Written by suspend(), before the coroutine can be resumed.
  CancellationToken cancellation_;
  std::uint64_t notice_ = 0;
  std::weak_ptr<WorkerServices> services_;
  std::uint64_t alarm_ = 0;

  Mutex mutex_;
  bool suspended_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Cause> cause_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
