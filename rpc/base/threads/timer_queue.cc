#include "sinew/rpc/base/threads/timer_queue.h"

#include <pthread.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/process_room.h"
#include "sinew/rpc/base/threads/timer_heap.h"

namespace sinew::internal {
namespace {

class SystemClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

// An exception of a callback ends the process, as one that leaves a thread does.
void run_timer(Task task) noexcept { std::move(task)(); }

}  // namespace

Clock& Clock::system() {
  // Never destroyed: threads look at it until the process is gone.
  static auto& clock = *new SystemClock();
  return clock;
}

namespace {

thread_local bool t_is_timer_thread = false;

}  // namespace

struct TimerQueue::Impl final : ProcessLife::Busy {
  ~Impl() override {
    // In a forked child the thread waits without end, and so would the destructor.
    if (!process.is_orphan()) delete &changed;
  }
  void run();
  bool stands_still() override {
    MutexLock lock(mutex);
    return !working || std::this_thread::get_id() == thread.get_id();
  }

  const ProcessBound process;
  mutable Mutex mutex;
  CondVar& changed = *new CondVar;
  TimerHeap heap ABSL_GUARDED_BY(mutex);
  // Until when the thread sleeps; the past while it is awake, since it will look at the heap by
  // itself. It may be the time of a callback that was cancelled: waking once for nothing is cheaper
  // than looking at each cancellation.
  Clock::TimePoint asleep_until ABSL_GUARDED_BY(mutex) = Clock::TimePoint::min();
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  // A callback runs.
  bool working ABSL_GUARDED_BY(mutex) = false;
  std::thread thread;
};

void TimerQueue::Impl::run() {
  pthread_setname_np(pthread_self(), "sinew-timers");
  t_is_timer_thread = true;
  MutexLock lock(mutex);
  while (!stopping) {
    if (Task task = heap.pop_due(Clock::system().now()); task != nullptr) {
      lock.unlock();
      ProcessLife::stand_still_at_exit();
      lock.lock();
      working = true;
      lock.unlock();
      run_timer(std::move(task));
      lock.lock();
      working = false;
      continue;
    }
    asleep_until = heap.next_due();
    if (asleep_until == Clock::TimePoint::max()) {
      changed.wait(mutex);
    } else {
      changed.wait_until(mutex, asleep_until);
    }
    asleep_until = Clock::TimePoint::min();
  }
}

bool TimerQueue::is_timer_thread() { return t_is_timer_thread; }

TimerQueue::TimerQueue() : impl_(std::make_unique<Impl>()) {
  impl_->thread = start_thread([this] { impl_->run(); });
  ProcessLife::add(impl_.get());
}

TimerQueue::~TimerQueue() { stop(); }

void TimerQueue::stop() {
  if (!impl_->thread.joinable()) return;
  ProcessLife::remove(impl_.get());
  if (impl_->process.is_orphan()) {
    impl_->thread.detach();
    return;
  }
  ProcessLife::move_on_if_exiting();
  {
    MutexLock lock(impl_->mutex);
    impl_->stopping = true;
    impl_->changed.notify_one();
  }
  impl_->thread.join();
}

TimerQueue::TimerId TimerQueue::run_at(Clock::TimePoint when, Task task) {
  TimerId id = 0;
  bool wake = false;
  {
    MutexLock lock(impl_->mutex);
    id = impl_->heap.add(when, std::move(task));
    wake = when < impl_->asleep_until;
    // The next ones need not wake the thread again unless they are earlier still.
    if (wake) impl_->asleep_until = when;
  }
  // Without the lock: the woken thread may run at once, in the place of this one.
  if (wake) impl_->changed.notify_one();
  return id;
}

bool TimerQueue::cancel(TimerId id) {
  Task removed;  // destroyed without the lock
  MutexLock lock(impl_->mutex);
  removed = impl_->heap.remove(id);
  return removed != nullptr;
}

std::size_t TimerQueue::size() const {
  MutexLock lock(impl_->mutex);
  return impl_->heap.size();
}

}  // namespace sinew::internal
