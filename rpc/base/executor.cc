#include "sinew/rpc/base/executor.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <list>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {
namespace {

// Threads beyond num_threads that stay for the next blocking wait; starting one costs some 20 us.
constexpr std::size_t kSpareThreads = 4;

// A thread that lets an exception escape ends the process and names the exception; so does a task.
void run_task(Task task) noexcept { std::move(task)(); }

}  // namespace

class Executor::Impl final : public TaskRunner {
 public:
  struct Worker {
    Impl* pool = nullptr;
    std::thread thread;
    // Guarded by the pool's mutex_.
    CondVar wake;
    bool woken = false;
    // Touched by the worker's own thread only.
    std::size_t blocking_scopes = 0;
  };

  Impl(Executor* owner, Options options) : owner_(owner), options_(std::move(options)) {
    options_.num_threads = std::max<std::size_t>(options_.num_threads, 1);
  }

  Executor* owner() const { return owner_; }

  bool post(Task task) override {
    MutexLock lock(mutex_);
    if (stopping_) return false;
    queue_.push_back(std::move(task));
    add_runner_locked();
    return true;
  }

  bool post_all(std::vector<Task> tasks) {
    MutexLock lock(mutex_);
    if (stopping_) return false;
    queue_.insert(queue_.end(), std::make_move_iterator(tasks.begin()),
                  std::make_move_iterator(tasks.end()));
    if (!queue_.empty()) add_runner_locked();
    return true;
  }

  void shutdown();
  Stats stats() const;
  bool is_stalled() const {
    MutexLock lock(mutex_);
    return !queue_.empty() && running_ == 0;
  }

  void enter_blocking(const std::function<std::string()>& describe_caller);
  void leave_blocking() {
    MutexLock lock(mutex_);
    --blocked_;
    ++running_;
  }

  // Which worker the calling thread is. A thread cannot tell its pool otherwise: the functions that
  // wait are called by user code, which passes no executor along.
  static thread_local Worker* this_worker;

 private:
  void run_worker(Worker& worker);
  bool add_runner_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool start_worker_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void wake_one_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool surplus_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return workers_.size() - blocked_ > options_.num_threads + kSpareThreads;
  }
  void retire_locked(Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Executor* const owner_;
  Options options_;

  mutable Mutex mutex_;
  std::deque<Task> queue_ ABSL_GUARDED_BY(mutex_);
  std::list<Worker> workers_ ABSL_GUARDED_BY(mutex_);
  // Have left workers_ and end without taking mutex_ again; to be joined.
  std::list<Worker> retired_ ABSL_GUARDED_BY(mutex_);
  // Parked workers. The one that parked last is woken first: its cache is warm, and those at the
  // bottom never wake when there is little to do.
  std::vector<Worker*> idle_ ABSL_GUARDED_BY(mutex_);
  // Workers that are neither parked nor blocked, with those that were woken and have not got here
  // yet. At most num_threads, but for threads that come back from a wait.
  std::size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of those, the ones that were woken and have not got here yet.
  std::size_t waking_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t blocked_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool joined_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar stopped_;  // workers_ became empty, or joined_ was set
};

thread_local Executor::Impl::Worker* Executor::Impl::this_worker = nullptr;

// Sees to it that one more worker looks at the queue, unless enough do. One that is on its way
// suffices: it wakes the next when it finds more than one task, so a burst of tiny tasks wakes no
// more threads than it can feed. Returns false if no worker will ever come.
bool Executor::Impl::add_runner_locked() {
  if (waking_ > 0 || running_ >= options_.num_threads) return true;
  if (!idle_.empty()) {
    wake_one_locked();
    return true;
  }
  return start_worker_locked() || running_ > 0;
}

void Executor::Impl::wake_one_locked() {
  Worker* worker = idle_.back();
  idle_.pop_back();
  worker->woken = true;
  worker->wake.notify_one();
  ++running_;
  ++waking_;
}

bool Executor::Impl::start_worker_locked() {
  Worker& worker = workers_.emplace_back();
  worker.pool = this;
  auto body = [this, &worker] { run_worker(worker); };
  try {
    worker.thread = options_.start_thread ? options_.start_thread(body) : std::thread(body);
  } catch (const std::system_error&) {
    // Out of threads. Those that exist go on, and each post() tries again.
    workers_.pop_back();
    return false;
  }
  ++running_;
  ++waking_;
  return true;
}

void Executor::Impl::run_worker(Worker& worker) {
  this_worker = &worker;
  pthread_setname_np(pthread_self(), options_.name.substr(0, 15).c_str());
  MutexLock lock(mutex_);
  --waking_;
  while (true) {
    while (!queue_.empty() && running_ <= options_.num_threads) {
      Task task = std::move(queue_.front());
      queue_.pop_front();
      if (!queue_.empty()) add_runner_locked();
      lock.unlock();
      run_task(std::move(task));
      lock.lock();
    }
    --running_;
    if (stopping_ || surplus_locked()) break;
    worker.woken = false;
    idle_.push_back(&worker);
    while (!worker.woken) worker.wake.wait(mutex_);
    --waking_;
  }
  std::list<Worker> finished;
  if (!stopping_) finished.swap(retired_);
  retire_locked(worker);
  lock.unlock();
  for (Worker& other : finished) other.thread.join();
}

void Executor::Impl::retire_locked(Worker& worker) {
  const auto self = std::find_if(workers_.begin(), workers_.end(),
                                 [&](const Worker& other) { return &other == &worker; });
  retired_.splice(retired_.end(), workers_, self);
  if (workers_.empty()) stopped_.notify_all();
}

void Executor::Impl::shutdown() {
  if (this_worker != nullptr && this_worker->pool == this) {
    std::fprintf(
        stderr,
        "sinew: the executor '%s' was shut down or destroyed by one of its own tasks, which "
        "would wait for itself\n",
        options_.name.c_str());
    std::abort();
  }
  std::list<Worker> finished;
  MutexLock lock(mutex_);
  const bool first = !stopping_;
  stopping_ = true;
  while (!idle_.empty()) wake_one_locked();
  while (!workers_.empty() || (!first && !joined_)) stopped_.wait(mutex_);
  finished.swap(retired_);
  // What is left if no thread could be started for it.
  std::deque<Task> left;
  left.swap(queue_);
  lock.unlock();
  for (Worker& worker : finished) worker.thread.join();
  for (Task& task : left) run_task(std::move(task));
  lock.lock();
  joined_ = true;
  stopped_.notify_all();
}

Executor::Stats Executor::Impl::stats() const {
  MutexLock lock(mutex_);
  Stats stats;
  stats.threads = workers_.size();
  stats.idle_threads = idle_.size();
  stats.blocked_threads = blocked_;
  stats.queued_tasks = queue_.size();
  return stats;
}

void Executor::Impl::enter_blocking(const std::function<std::string()>& describe_caller) {
  std::string cause;
  {
    MutexLock lock(mutex_);
    if (blocked_ >= options_.max_blocked_threads) {
      cause = absl::StrCat(blocked_, " tasks are blocked in a wait already (max_blocked_threads)");
    } else {
      ++blocked_;
      --running_;
      if (queue_.empty() || add_runner_locked()) return;
      --blocked_;
      ++running_;
      cause = "the system starts no further thread";
    }
  }
  const std::string chain = describe_caller ? describe_caller() : std::string();
  throw RpcError(
      ErrorCode::kResourceExhausted,
      absl::StrCat("this wait would block a thread of the executor '", options_.name, "', but ",
                   cause, "; return a Future from the handler instead of waiting, or allow more",
                   chain.empty() ? "" : "; call chain: ", chain));
}

Executor::Executor(Options options)
    : impl_(std::make_shared<Impl>(this, std::move(options))), runner_(impl_) {}

Executor::~Executor() { shutdown(); }

bool Executor::post(Task task) { return impl_->post(std::move(task)); }

bool Executor::post_all(std::vector<Task> tasks) { return impl_->post_all(std::move(tasks)); }

const std::shared_ptr<TaskRunner>& Executor::runner() const { return runner_; }

void Executor::shutdown() { impl_->shutdown(); }

Executor::Stats Executor::stats() const { return impl_->stats(); }

bool Executor::is_stalled() const { return impl_->is_stalled(); }

Executor* Executor::current() {
  const Impl::Worker* worker = Impl::this_worker;
  return worker == nullptr ? nullptr : worker->pool->owner();
}

Executor::BlockingScope::BlockingScope(const std::function<std::string()>& describe_caller) {
  Impl::Worker* worker = Impl::this_worker;
  if (worker == nullptr) return;
  if (worker->blocking_scopes == 0) worker->pool->enter_blocking(describe_caller);
  ++worker->blocking_scopes;
}

Executor::BlockingScope::~BlockingScope() {
  Impl::Worker* worker = Impl::this_worker;
  if (worker == nullptr) return;
  if (--worker->blocking_scopes == 0) worker->pool->leave_blocking();
}

}  // namespace sinew::internal
