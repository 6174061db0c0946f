#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/cancellation.h"
#include "sinew/rpc/internal/batch_queue.h"

namespace sinew::internal {

/// A call that waits at a Batcher: its input, and the promise of its output.
class BatchCall {
 public:
  virtual ~BatchCall() = default;
  virtual void fail(std::exception_ptr error) = 0;
};

/// The part of a Batcher that does not depend on its types: the calls that wait, the threads that
/// run batches, and the time. Thread-safe.
class BatchRunner : public std::enable_shared_from_this<BatchRunner> {
 public:
  using Calls = std::vector<std::unique_ptr<BatchCall>>;
  /// Says that a batch runs for as long as it lives.
  using Slot = std::shared_ptr<void>;
  /// Completes all of `calls`, at once or later; keeps `slot` until then. Must not throw.
  using Run = absl::AnyInvocable<void(Calls calls, Slot slot)>;

  /// Throws RpcError kInvalidArgument for options that make no sense, kResourceExhausted when the
  /// threads cannot be started.
  static std::shared_ptr<BatchRunner> make(const BatcherOptions& options, Run run);

  /// In a handler, on behalf of the call that is being served. A call that cannot wait is failed.
  void add(std::unique_ptr<BatchCall> call);
  void set_expected(std::size_t callers);
  BatcherStats stats() const;

  /// Fails what waits, and returns when no batch is being run. From then on nothing is.
  static void stop(const std::shared_ptr<BatchRunner>& runner);

 private:
  using Ticket = BatchQueue::Ticket;
  struct Waiting {
    std::unique_ptr<BatchCall> call;
    CancellationToken cancellation;
    std::uint64_t notice = 0;
  };
  // What to do once the mutex is free.
  struct Actions;

  BatchRunner(const BatcherOptions& options, Run run);

  void watch(Ticket ticket, CancellationToken cancellation);
  void cancel(Ticket ticket);
  void batch_ended();
  /// Lets go what can.
  void advance();
  std::vector<std::vector<Waiting>> take_batches_locked(Clock::TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void look_again_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Waiting> take_locked(const std::vector<Ticket>& tickets)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void perform(Actions actions);
  void begin_batch(std::vector<Waiting> batch);
  void fail_waiting();
  void join();

  // Constant after construction.
  const ProcessBound process_;
  Run run_;

  mutable Mutex mutex_;
  BatchQueue queue_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Ticket, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Clock::TimePoint> alarm_at_ ABSL_GUARDED_BY(mutex_);
  Timers::TimerId alarm_ ABSL_GUARDED_BY(mutex_) = 0;

  Executor executor_;
  TimerQueue timers_;
};

}  // namespace sinew::internal
