#include "sinew/rpc/cancellation.h"

#include <atomic>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew {
namespace internal {

class CancellationState {
 public:
  bool is_cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  std::uint64_t notify(absl::AnyInvocable<void() &&> callback) {
    {
      MutexLock lock(mutex_);
      if (!cancelled_.load(std::memory_order_relaxed)) {
        callbacks_.emplace(++last_number_, std::move(callback));
        return last_number_;
      }
    }
    std::move(callback)();
    return 0;
  }

  void forget(std::uint64_t number) {
    absl::AnyInvocable<void() &&> dropped;  // destroyed unlocked: its captures may own anything
    MutexLock lock(mutex_);
    auto found = callbacks_.find(number);
    if (found == callbacks_.end()) return;
    dropped = std::move(found->second);
    callbacks_.erase(found);
  }

  void cancel() {
    absl::btree_map<std::uint64_t, absl::AnyInvocable<void() &&>> callbacks;
    {
      MutexLock lock(mutex_);
      if (cancelled_.exchange(true, std::memory_order_acq_rel)) return;
      callbacks.swap(callbacks_);
    }
    for (auto& [number, callback] : callbacks) std::move(callback)();
  }

 private:
  std::atomic<bool> cancelled_{false};
  Mutex mutex_;
  std::uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::btree_map<std::uint64_t, absl::AnyInvocable<void() &&>> callbacks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace internal

bool CancellationToken::is_cancelled() const { return state_ && state_->is_cancelled(); }

std::uint64_t CancellationToken::notify(absl::AnyInvocable<void() &&> callback) const {
  return state_ ? state_->notify(std::move(callback)) : 0;
}

void CancellationToken::forget(std::uint64_t number) const {
  if (state_ && number != 0) state_->forget(number);
}

CancellationSource::CancellationSource()
    : token_(std::make_shared<internal::CancellationState>()) {}

void CancellationSource::cancel() const { token_.state_->cancel(); }

namespace internal {

LateCancellation::~LateCancellation() { delete source_.load(std::memory_order_acquire); }

// The thread that makes the source and the one that cancels write one variable each and then read
// the other one, in one order for all: at least one of the two sees both. A thread that only finds
// the source may be ahead of the one that made it. So callbacks of other tokens may run in here, at
// the moment of cancelling.
CancellationToken LateCancellation::token() const {
  const CancellationSource* source = source_.load();
  if (source == nullptr) {
    auto made = std::make_unique<const CancellationSource>();
    if (source_.compare_exchange_strong(source, made.get())) source = made.release();
  }
  if (cancelled_.load()) source->cancel();
  return source->token();
}

void LateCancellation::cancel() {
  cancelled_.store(true);
  if (const CancellationSource* const source = source_.load()) source->cancel();
}

}  // namespace internal

}  // namespace sinew
