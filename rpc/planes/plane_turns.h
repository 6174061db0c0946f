#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/executor.h"

namespace sinew::internal {

/// When the ends of connections that have nothing large to send find out about planes all the same:
/// one connection after the other, since those of hundreds that are made at once would delay what
/// is called over these. Thread-safe. Held by shared_ptr.
class PlaneTurns : public std::enable_shared_from_this<PlaneTurns> {
 public:
  /// Between two turns.
  static constexpr std::chrono::nanoseconds kPause = std::chrono::seconds(1);
  /// Where many wait: less, as if all of them were to be through after so long.
  static constexpr std::chrono::nanoseconds kTimeForAll = std::chrono::seconds(30);

  /// Runs a task after so long, or drops it. Called without a lock.
  using RunAfter = std::function<void(std::chrono::nanoseconds delay, Task task)>;
  explicit PlaneTurns(RunAfter run_after) : run_after_(std::move(run_after)) {}

  /// Runs where `run_after` runs its tasks. False: there was nothing to begin, so it takes no turn.
  using Begin = absl::AnyInvocable<bool() &&>;
  void enter(Begin begin);

 private:
  void run_next();
  void run_next_after(std::chrono::nanoseconds delay);

  const RunAfter run_after_;
  Mutex mutex_;
  std::deque<Begin> waiting_ ABSL_GUARDED_BY(mutex_);
  // A turn, or the pause after one, is to end.
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sinew::internal
