#include "sinew/rpc/base/threads/executor_impl.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/process_room.h"

namespace sinew::internal {
namespace {

// How often the watching thread looks.
constexpr auto kWatchInterval = std::chrono::milliseconds(1);
// Flushes are put off for so many tasks at most, so that those who wait for the first ones go on
// while the last ones run.
constexpr int kMaxTasksPerFlush = 16;

// A thread that lets an exception escape ends the process and names the exception; so does a task.
void run_task(Task task) noexcept { std::move(task)(); }

}  // namespace

thread_local Executor::Impl::Worker* Executor::Impl::this_worker = nullptr;
thread_local Executor::Helper::State* Executor::Impl::this_helper = nullptr;

// Sees to it that one more worker looks at the queue, unless enough do. One that is on its way
// suffices: it wakes the next when it finds more than it can feed on. Returns false if no worker
// will ever come.
bool Executor::Impl::add_runner_locked(Wakeups& wakeups) {
  if (waking_ > 0 || running_ >= options_.num_threads) return true;
  if (this_helper != nullptr && this_helper->pool == nullptr) {
    take_on_helper_locked();
    return true;
  }
  if (running_ > 0 && is_brisk_locked() && have_watched_locked(wakeups)) return true;
  if (!idle_.empty() || watcher_ != nullptr) {
    wake_one_locked(wakeups);
    return true;
  }
  return start_worker_locked() || running_ > 0;
}

void Executor::Impl::wake_one_locked(Wakeups& wakeups) {
  Worker* worker = watcher_;
  if (idle_.empty()) {
    watcher_ = nullptr;
  } else {
    worker = idle_.back();
    idle_.pop_back();
  }
  worker->woken = true;
  wakeups.add(*worker);
  ++running_;
  ++waking_;
}

// Sees to it that a parked worker watches; false if there is none.
bool Executor::Impl::have_watched_locked(Wakeups& wakeups) {
  left_to_running_ = true;
  if (watcher_ != nullptr) return true;
  if (idle_.empty()) return false;
  watcher_ = idle_.back();
  idle_.pop_back();
  wakeups.add(*watcher_);
  watched_.store(true, std::memory_order_release);
  return true;
}

void Executor::Impl::take_on_helper_locked() {
  Helper::State& helper = *this_helper;
  helper.pool = shared_from_this();
  helper.worker->pool = this;
  workers_.splice(workers_.end(), helper.idle, helper.worker);
  ++running_;
  ++waking_;
}

void Executor::Impl::run_helper(Helper::State& helper) {
  this_worker = &*helper.worker;
  MutexLock lock(mutex_);
  --waking_;
  run_tasks(*helper.worker);
  --running_;
  helper.idle.splice(helper.idle.end(), workers_, helper.worker);
  if (workers_.empty()) stopped_.notify_all();
  this_worker = nullptr;
}

void Executor::Impl::start_minimum() {
  bool started = true;
  {
    MutexLock lock(mutex_);
    while (started && workers_.size() < options_.min_threads) started = start_worker_locked();
  }
  if (!started) throw_error(no_thread_started());
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
    run_tasks(worker);
    --running_;
    if (stopping_ || surplus_locked()) break;
    park(worker);
  }
  std::list<Worker> finished;
  if (!stopping_) finished.swap(retired_);
  retire_locked(worker);
  lock.unlock();
  for (Worker& other : finished) other.thread.join();
}

void Executor::Impl::run_tasks(Worker& worker) {
  using SteadyClock = std::chrono::steady_clock;
  SteadyClock::time_point begun = SteadyClock::now();
  while (!queue_.empty() && running_ <= options_.num_threads) {
    Task task = std::move(queue_.front());
    queue_.pop_front();
    ++tasks_started_;
    Wakeups wakeups;
    if (!queue_.empty()) add_runner_locked(wakeups);
    worker.more_follow = !queue_.empty() && have_watched_locked(wakeups);
    worker.task_begun = begun;
    mutex_.unlock();
    wakeups.notify();
    if (ProcessLife::is_standstill()) stand_still_at_exit();
    run_task(std::move(task));
    if (!worker.more_follow || ++worker.tasks_since_flush >= kMaxTasksPerFlush) flush(worker);
    const SteadyClock::time_point ended = SteadyClock::now();
    mutex_.lock();
    average_task_ += (ended - begun - average_task_) / 8;
    begun = ended;
    if (worker.tasks_since_flush > 0 && (queue_.empty() || running_ > options_.num_threads)) {
      // Others have taken what was to follow.
      mutex_.unlock();
      flush(worker);
      mutex_.lock();
    }
  }
}

void Executor::Impl::stand_still_at_exit() {
  {
    MutexLock lock(mutex_);
    ++standing_;
  }
  ProcessLife::stand_still_at_exit();
  MutexLock lock(mutex_);
  --standing_;
}

bool Executor::Impl::stands_still() {
  const bool is_callers = this_worker != nullptr && this_worker->pool == this;
  MutexLock lock(mutex_);
  return running_ <= waking_ + standing_ + (is_callers ? 1 : 0);
}

// Returns when the worker counts as running again.
void Executor::Impl::park(Worker& worker) {
  worker.woken = false;
  idle_.push_back(&worker);
  while (true) {
    while (!worker.woken && watcher_ != &worker) worker.wake->wait(mutex_);
    if (worker.woken) break;
    if (watch(worker)) return;
    idle_.push_back(&worker);
  }
  --waking_;
}

// Looks now and then whether the tasks that were left to the running workers move on. Returns true
// when this worker runs now, either because they do not or because it was woken, and false when
// there is nothing to watch any more.
bool Executor::Impl::watch(Worker& worker) {
  bool runs = false;
  while (!runs) {
    const std::uint64_t started_before = tasks_started_;
    left_to_running_ = false;
    const auto until = std::chrono::steady_clock::now() + kWatchInterval;
    while (!worker.woken && std::chrono::steady_clock::now() < until) {
      worker.wake->wait_until(mutex_, until);
    }
    if (worker.woken) {
      --waking_;
      runs = true;
    } else if (!queue_.empty() && tasks_started_ == started_before &&
               running_ < options_.num_threads) {
      ++running_;
      runs = true;
    } else if (queue_.empty() && !left_to_running_) {
      break;
    } else {
      flush_all();
    }
  }
  if (!worker.woken) watcher_ = nullptr;
  // In this order: what flush_later() accepts is flushed here or by its own thread's loop.
  watched_.store(watcher_ != nullptr, std::memory_order_release);
  flush_all();
  return runs;
}

bool Executor::Impl::flush_later(Worker& worker, const std::shared_ptr<Flushable>& what) {
  if (!worker.more_follow) return false;
  // After a long task those that follow are likely to be long too.
  if (std::chrono::steady_clock::now() - worker.task_begun > kWakeUp) return false;
  MutexLock lock(worker.flush_mutex);
  if (!watched_.load(std::memory_order_acquire)) return false;
  if (std::find(worker.flushes.begin(), worker.flushes.end(), what) == worker.flushes.end()) {
    worker.flushes.push_back(what);
  }
  return true;
}

void Executor::Impl::flush(Worker& worker) {
  worker.tasks_since_flush = 0;
  std::vector<std::shared_ptr<Flushable>> flushes;
  {
    MutexLock lock(worker.flush_mutex);
    flushes.swap(worker.flushes);
  }
  for (const auto& each : flushes) each->flush();
}

// What the running workers have put off, from another thread: they may be busy for long.
void Executor::Impl::flush_all() {
  std::vector<std::shared_ptr<Flushable>> flushes;
  for (Worker& each : workers_) {
    MutexLock flush_lock(each.flush_mutex);
    std::move(each.flushes.begin(), each.flushes.end(), std::back_inserter(flushes));
    each.flushes.clear();
  }
  if (flushes.empty()) return;
  mutex_.unlock();
  for (const auto& each : flushes) each->flush();
  mutex_.lock();
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
  ProcessLife::move_on_if_exiting();
  std::list<Worker> finished;
  Wakeups wakeups;
  MutexLock lock(mutex_);
  const bool first = !stopping_;
  stopping_ = true;
  while (!idle_.empty() || watcher_ != nullptr) wake_one_locked(wakeups);
  wakeups.notify();
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
  lock.unlock();
  ProcessLife::remove(this);
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
    Wakeups wakeups;
    MutexLock lock(mutex_);
    if (blocked_ >= options_.max_blocked_threads) {
      cause = absl::StrCat(blocked_, " tasks are blocked in a wait already (max_blocked_threads)");
    } else {
      ++blocked_;
      --running_;
      if (queue_.empty() || add_runner_locked(wakeups)) return;
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

}  // namespace sinew::internal
