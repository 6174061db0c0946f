#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/worker_options.h"

namespace sinew::internal {

class WorkerCore;

/// How one worker comes back once it is evicted: ends it and starts a new one with its options,
/// when it is asked for, or by itself where the options have on_rejoined. Holds neither of the two.
/// Thread-safe.
class Rejoiner final : public std::enable_shared_from_this<Rejoiner>, ProcessLife::Busy {
 public:
  explicit Rejoiner(const WorkerOptions& options)
      : name_(options.name), on_rejoined_(options.on_rejoined) {}
  ~Rejoiner() override;

  /// See Worker::rejoin(). `evicted` is the one worker of this.
  std::shared_ptr<WorkerCore> rejoin(std::shared_ptr<WorkerCore> evicted);

  /// The worker is evicted, on any thread. Comes once.
  void on_evicted(std::weak_ptr<WorkerCore> evicted);
  /// The worker has started, and on_rejoined() knows it if it took the place of another one: from
  /// now on it may be replaced by itself.
  void allow();

  /// The worker was shut down, or is destroyed: it gets no successor unless it has one already.
  void cancel();
  /// Also waits until what was on its way has ended.
  void cancel_and_wait();
  /// It was shut down before it had a successor.
  bool is_cancelled() const;

 private:
  absl::Status may_rejoin_locked(const std::shared_ptr<WorkerCore>& evicted) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<WorkerCore> attempt(std::shared_ptr<WorkerCore> evicted);
  void on_joining(WorkerCore& next);
  void begin_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void run();
  bool try_once();
  void hand_over(const std::shared_ptr<WorkerCore>& next) const;
  bool pause(std::chrono::nanoseconds duration);
  bool stands_still() override { return !works_.load(std::memory_order_acquire); }

  const std::string name_;
  const std::function<void(const Worker&)> on_rejoined_;
  // Something is being ended or started, which exit() should let happen.
  std::atomic<bool> works_{false};

  mutable Mutex mutex_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_successor_ ABSL_GUARDED_BY(mutex_) = false;
  std::weak_ptr<WorkerCore> successor_ ABSL_GUARDED_BY(mutex_);
  // The attempt that is on, who makes it, and the new worker while it looks for the job.
  Future<std::shared_ptr<WorkerCore>> attempt_ ABSL_GUARDED_BY(mutex_);
  std::thread::id attempts_ ABSL_GUARDED_BY(mutex_);
  std::weak_ptr<WorkerCore> joining_ ABSL_GUARDED_BY(mutex_);
  // By itself.
  bool allowed_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_evicted_ ABSL_GUARDED_BY(mutex_) = false;
  std::weak_ptr<WorkerCore> evicted_ ABSL_GUARDED_BY(mutex_);
  bool runs_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sinew::internal
