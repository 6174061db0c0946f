#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// Why a worker does nothing more, for what outlives it: a handle that holds its worker weakly says
/// the same whether the worker is there still or not. Thread-safe.
class WorkerEnd {
 public:
  explicit WorkerEnd(std::string name) : name_(std::move(name)) {}

  /// The worker is no member of the job, although it runs.
  void set_evicted(absl::Status reason);
  absl::Status evicted() const;
  /// Why it does something no more: it was evicted, or else was shut down (kFailedPrecondition),
  /// with this consequence for the text.
  absl::Status with(std::string_view consequence) const;

 private:
  const std::string name_;
  std::atomic<bool> is_evicted_{false};
  mutable Mutex mutex_;
  absl::Status evicted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
