#include "sinew/rpc/base/threads/executor_impl.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

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

// What the thread that posts offers.
RunRules::Helper Executor::Impl::helper_offered() {
  if (this_helper == nullptr || this_helper->engaged == this_helper->engagements.size()) {
    return RunRules::Helper::kNone;
  }
  return this_helper->engaged == 0 ? RunRules::Helper::kFree : RunRules::Helper::kBusy;
}

// Returns false if no worker will ever come.
bool Executor::Impl::carry_out_locked(RunRules::Wake wake, Wakeups& wakeups) {
  using Runner = RunRules::Runner;
  if (wake.one_to_watch) {
    watcher_ = idle_.back();
    idle_.pop_back();
    wakeups.add(*watcher_);
    watched_.store(true, std::memory_order_release);
  }
  switch (wake.runner) {
    case Runner::kParked:
    case Runner::kWatcher:
      wake_to_run_locked(wake.runner, wakeups);
      return true;
    case Runner::kNewThread:
      return start_worker_locked() || rules_.not_started();
    case Runner::kHelper:
      engage_helper_locked();
      return true;
    case Runner::kNobody:
      return true;
  }
  return true;
}

void Executor::Impl::wake_to_run_locked(RunRules::Runner runner, Wakeups& wakeups) {
  Worker* worker = nullptr;
  if (runner == RunRules::Runner::kParked) {
    worker = idle_.back();
    idle_.pop_back();
  } else {
    worker = std::exchange(watcher_, nullptr);
  }
  worker->woken = true;
  worker->call = WakeUpPrice::Call::now();
  wakeups.add(*worker);
}

void Executor::Impl::engage_helper_locked() {
  Helper::Engagement& engagement = this_helper->engagements.at(this_helper->engaged++);
  engagement.pool = shared_from_this();
  engagement.worker->pool = this;
  workers_.splice(workers_.end(), engagement.idle, engagement.worker);
  if (this_helper->engaged > 1) busy_helper_ = &engagement;
}

void Executor::Impl::look_at_helper_locked() {
  if (busy_helper_ == nullptr || rules_.counts_on_busy_helper()) return;
  std::exchange(busy_helper_, nullptr)->is_given_up = true;
}

void Executor::Impl::run_engaged(Helper::Engagement& engagement) {
  this_worker = &*engagement.worker;
  MutexLock lock(mutex_);
  if (std::exchange(engagement.is_given_up, false)) {
    rules_.join();
  } else {
    const bool was_busy = busy_helper_ == &engagement;
    if (was_busy) busy_helper_ = nullptr;
    rules_.helper_arrives(was_busy);
  }
  run_tasks(*engagement.worker);
  rules_.stop();
  engagement.idle.splice(engagement.idle.end(), workers_, engagement.worker);
  if (workers_.empty()) stopped_.notify_all();
  this_worker = nullptr;
}

void Executor::Impl::start_minimum() {
  bool started = true;
  {
    MutexLock lock(mutex_);
    while (started && workers_.size() < options_.min_threads) {
      rules_.start();
      started = start_worker_locked();
      if (!started) static_cast<void>(rules_.not_started());
    }
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
  return true;
}

void Executor::Impl::run_worker(Worker& worker) {
  this_worker = &worker;
  pthread_setname_np(pthread_self(), options_.name.substr(0, 15).c_str());
  MutexLock lock(mutex_);
  rules_.arrive();
  while (true) {
    run_tasks(worker);
    rules_.stop();
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
  while (rules_.may_take()) {
    Task task = std::move(queue_.front());
    queue_.pop_front();
    const RunRules::Taken taken = rules_.take();
    Wakeups wakeups;
    carry_out_locked(taken.wake, wakeups);
    worker.more_follow = taken.more_follow;
    worker.task_begun = begun;
    mutex_.unlock();
    wakeups.notify();
    if (ProcessLife::is_standstill()) stand_still_at_exit();
    run_task(std::move(task));
    if (!worker.more_follow || ++worker.tasks_since_flush >= kMaxTasksPerFlush) flush(worker);
    const SteadyClock::time_point ended = SteadyClock::now();
    mutex_.lock();
    rules_.ran(ended - begun);
    begun = ended;
    if (worker.tasks_since_flush > 0 && !rules_.may_take()) {
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
  return rules_.running() <= rules_.waking() + standing_ + (is_callers ? 1 : 0);
}

// Returns when the worker counts as running again.
void Executor::Impl::park(Worker& worker) {
  worker.woken = false;
  while (true) {
    idle_.push_back(&worker);
    rules_.park();
    while (!worker.woken && watcher_ != &worker) worker.wake->wait(mutex_);
    if (worker.woken) {
      price_.on_wake_up(worker.call);
      rules_.set_wake_up(price_.now());
      return rules_.arrive();
    }
    if (watch(worker)) return;
  }
}

// Looks now and then whether the tasks that were left to others move on. Returns true when this
// worker runs now, and false when there is nothing to watch any more.
bool Executor::Impl::watch(Worker& worker) {
  using Watch = RunRules::Watch;
  Watch next = Watch::kGoesOn;
  while (next == Watch::kGoesOn) {
    rules_.begin_interval();
    const auto until = std::chrono::steady_clock::now() + kWatchInterval;
    while (!worker.woken && std::chrono::steady_clock::now() < until) {
      worker.wake->wait_until(mutex_, until);
    }
    if (worker.woken) {
      rules_.arrive();
      break;
    }
    next = rules_.end_interval();
    look_at_helper_locked();
    if (next == Watch::kGoesOn) flush_all();
  }
  if (!worker.woken) watcher_ = nullptr;
  // In this order: what flush_later() accepts is flushed here or by its own thread's loop.
  watched_.store(watcher_ != nullptr, std::memory_order_release);
  flush_all();
  // Meanwhile all may have been woken for the end.
  if (next == Watch::kParks && stopping_) {
    rules_.join();
    return true;
  }
  return next != Watch::kParks;
}

bool Executor::Impl::flush_later(Worker& worker, const std::shared_ptr<Flushable>& what) {
  if (!worker.more_follow) return false;
  // After a longer task those that follow are likely to be long too.
  if (std::chrono::steady_clock::now() - worker.task_begun > price_.now()) {
    return false;
  }
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
  for (RunRules::Runner next = rules_.wake_to_end(); next != RunRules::Runner::kNobody;
       next = rules_.wake_to_end()) {
    wake_to_run_locked(next, wakeups);
  }
  look_at_helper_locked();
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
  stats.blocked_threads = rules_.blocked();
  stats.running_threads = rules_.running();
  stats.num_threads = rules_.num_threads();
  stats.queued_tasks = queue_.size();
  return stats;
}

void Executor::Impl::enter_blocking(const std::function<std::string()>& describe_caller) {
  std::string cause;
  {
    Wakeups wakeups;
    MutexLock lock(mutex_);
    if (rules_.blocked() >= options_.max_blocked_threads) {
      cause = absl::StrCat(rules_.blocked(),
                           " tasks are blocked in a wait already (max_blocked_threads)");
    } else {
      if (carry_out_locked(rules_.begin_wait(), wakeups)) return;
      rules_.end_wait();
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
