#include "sinew/rpc/base/worker_end.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sinew::internal {

void WorkerEnd::set_evicted(absl::Status reason) {
  MutexLock lock(mutex_);
  evicted_ = std::move(reason);
  is_evicted_.store(true, std::memory_order_release);
}

absl::Status WorkerEnd::evicted() const {
  if (!is_evicted_.load(std::memory_order_acquire)) return absl::OkStatus();
  MutexLock lock(mutex_);
  return evicted_;
}

absl::Status WorkerEnd::with(std::string_view consequence) const {
  absl::Status evicted = this->evicted();
  if (!evicted.ok()) return evicted;
  return absl::FailedPreconditionError(
      absl::StrCat("worker '", name_,
                   "' was shut down: ", absl::string_view(consequence.data(), consequence.size())));
}

}  // namespace sinew::internal
