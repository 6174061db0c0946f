#include "sinew/rpc/base/threads/strand.h"

#include <utility>

namespace sinew::internal {

void Strand::post(Task task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    if (scheduled_) return;
    scheduled_ = true;
  }
  schedule();
}

// One task of the runner for each of ours, so that a busy strand lets other work have its turn.
void Strand::schedule() {
  if (runner_->post([self = shared_from_this()] { self->run_one(); })) return;
  std::deque<Task>
      refused;  // destroyed outside the lock: tasks own promises, whose ends run callbacks
  MutexLock lock(mutex_);
  refused.swap(tasks_);
  scheduled_ = false;
  lock.unlock();
}

void Strand::run_one() {
  {
    Task task;
    {
      MutexLock lock(mutex_);
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    std::move(task)();
  }
  {
    MutexLock lock(mutex_);
    scheduled_ = !tasks_.empty();
    if (!scheduled_) return;
  }
  schedule();
}

}  // namespace sinew::internal
