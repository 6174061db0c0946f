#include "sinew/rpc/base/threads/waiter_runner.h"

#include <utility>

#include "sinew/rpc/base/internal/thread_context.h"

namespace sinew::internal {

bool WaiterRunner::post(Task task) {
  {
    MutexLock lock(mutex_);
    if (waiting_) {
      tasks_.push_back(std::move(task));
    } else {
      lock.unlock();
      return executor_->post(std::move(task));
    }
  }
  notify();
  return true;
}

void WaiterRunner::notify() {
  std::optional<Promise<void>> news;
  {
    MutexLock lock(mutex_);
    news.swap(news_);
  }
  if (news.has_value()) news->try_set_value();
}

/// That a thread waits. Leaves what it has not run to the executor.
class WaiterRunner::Waiting {
 public:
  explicit Waiting(WaiterRunner& runner) : runner_(runner) {
    MutexLock lock(runner_.mutex_);
    runner_.waiting_ = true;
  }
  ~Waiting() {
    std::vector<Task> left;
    {
      MutexLock lock(runner_.mutex_);
      runner_.waiting_ = false;
      runner_.news_.reset();
      left.swap(runner_.tasks_);
    }
    for (Task& task : left) runner_.executor_->post(std::move(task));
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  WaiterRunner& runner_;
};

// The tasks there are. If there are none and `done` is not complete, what tells of the next one.
std::vector<Task> WaiterRunner::take(const Future<void>& done, std::optional<Future<void>>& news) {
  MutexLock lock(mutex_);
  if (tasks_.empty()) {
    news_.emplace(FutureAccess::make_promise<void>(executor_));
    news = news_->future();
    // The thread that completes it from here on finds the promise.
    if (done.done()) news.reset();
  }
  return std::exchange(tasks_, {});
}

void WaiterRunner::wait(const Future<void>& done) {
  {
    const Waiting waiting(*this);
    while (!done.done()) {
      std::optional<Future<void>> news;
      std::vector<Task> tasks = take(done, news);
      if (news.has_value()) news->wait();
      // As on a thread of the executor: they are no part of what this one does.
      const ThreadContext::Scope no_context(nullptr);
      for (Task& task : tasks) std::move(task)();
    }
  }
  done.wait();
}

}  // namespace sinew::internal
