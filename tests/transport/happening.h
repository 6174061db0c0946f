#pragma once

#include <chrono>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// Bound of every wait in these tests; only a failing test uses it up.
constexpr std::chrono::seconds kPatience(30);

/// Waits until `condition` holds; whoever changes it notifies `changed`. False when patience ended
/// first.
template <class Condition>
bool wait_patiently(Mutex& mutex, CondVar& changed, const Condition& condition)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    changed.wait_until(mutex, deadline);
  }
  return true;
}

/// Something that happens once. Unlike absl::Notification, ThreadSanitizer sees it.
class Happening {
 public:
  void notify() {
    MutexLock lock(mutex_);
    happened_ = true;
    changed_.notify_all();
  }
  bool wait() {
    MutexLock lock(mutex_);
    return wait_patiently(mutex_, changed_,
                          [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return happened_; });
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool happened_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sinew::internal
