#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// What a worker lets wait for some time, and ends when it ends itself. Thread-safe.
class Pauses : public std::enable_shared_from_this<Pauses> {
 public:
  explicit Pauses(Timers& timers) : timers_(timers) {}

  /// Completes at `when`; fails once the pauses have ended. Callbacks run on `executor`.
  Future<void> wait_until(Clock::TimePoint when, Executor* executor);
  /// All fail with `reason`, also later ones. Of several reasons the first counts.
  void end(const absl::Status& reason);

 private:
  struct Pause {
    Promise<void> promise;
    Timers::TimerId timer = 0;
  };
  void on_time(std::uint64_t number);

  Timers& timers_;

  Mutex mutex_;
  std::map<std::uint64_t, Pause> pauses_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
