#include "sinew/tests/support/fault_timer.h"

#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {
namespace {

class ThreadedFaultTimer final : public FaultTimer {
 public:
  void run_after(std::chrono::nanoseconds delay, absl::AnyInvocable<void() &&> task) override {
    queue_.run_at(Clock::system().now() + delay, std::move(task));
  }

 private:
  TimerQueue queue_;
};

}  // namespace

struct ManualFaultTimer::Impl {
  mutable Mutex mutex;
  std::chrono::nanoseconds now ABSL_GUARDED_BY(mutex){0};
  std::multimap<std::chrono::nanoseconds, absl::AnyInvocable<void() &&>> tasks
      ABSL_GUARDED_BY(mutex);
};

ManualFaultTimer::ManualFaultTimer() : impl_(std::make_unique<Impl>()) {}
ManualFaultTimer::~ManualFaultTimer() = default;

void ManualFaultTimer::run_after(std::chrono::nanoseconds delay,
                                 absl::AnyInvocable<void() &&> task) {
  MutexLock lock(impl_->mutex);
  impl_->tasks.emplace(impl_->now + delay, std::move(task));
}

void ManualFaultTimer::advance(std::chrono::nanoseconds time) {
  impl_->mutex.lock();
  const std::chrono::nanoseconds end = impl_->now + time;
  while (!impl_->tasks.empty() && impl_->tasks.begin()->first <= end) {
    auto due = impl_->tasks.extract(impl_->tasks.begin());
    impl_->now = due.key();
    impl_->mutex.unlock();
    std::move(due.mapped())();
    impl_->mutex.lock();
  }
  impl_->now = end;
  impl_->mutex.unlock();
}

std::size_t ManualFaultTimer::pending() const {
  MutexLock lock(impl_->mutex);
  return impl_->tasks.size();
}

std::shared_ptr<FaultTimer> make_threaded_fault_timer() {
  return std::make_shared<ThreadedFaultTimer>();
}

}  // namespace sinew::internal
