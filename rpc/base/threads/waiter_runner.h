#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/executor.h"

namespace sinew::internal {

/// Runs tasks on a thread that waits for what they lead to: it would have nothing to do, and to
/// wake another one takes longer than most tasks. While no thread waits an executor runs them.
/// Thread-safe.
class WaiterRunner final : public TaskRunner {
 public:
  explicit WaiterRunner(std::shared_ptr<TaskRunner> executor) : executor_(std::move(executor)) {}

  bool post(Task task) override;
  PollingDuty* polling_duty() const override { return executor_->polling_duty(); }
  bool is_orphan() const override { return executor_->is_orphan(); }

  /// Waits until `done` is complete, and runs what is posted meanwhile, one task after the other.
  /// The thread that completes `done` calls notify() then. For one thread at a time. Throws what
  /// Future::wait() throws; what has not run by then is left to the executor.
  void wait(const Future<void>& done);
  void notify();

 private:
  class Waiting;
  std::vector<Task> take(const Future<void>& done, std::optional<Future<void>>& news);

  const std::shared_ptr<TaskRunner> executor_;
  Mutex mutex_;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  // Completed by the next task, and by notify().
  std::optional<Promise<void>> news_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
