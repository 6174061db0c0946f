#pragma once

#include <deque>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/executor.h"

namespace sinew::internal {

/// Runs tasks one at a time, in the order in which they were posted, on the threads of a runner.
/// What only the tasks of one strand touch needs no lock, and they may call whatever they like.
/// Thread-safe.
class Strand : public std::enable_shared_from_this<Strand> {
 public:
  explicit Strand(std::shared_ptr<TaskRunner> runner) : runner_(std::move(runner)) {}

  /// Never runs `task` inside this call. Tasks that the runner refuses are destroyed unrun.
  void post(Task task);

 private:
  void run_one();
  void schedule();

  const std::shared_ptr<TaskRunner> runner_;
  Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  // A task of the runner exists that will run the front.
  bool scheduled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sinew::internal
