#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/run_rules.h"
#include "sinew/rpc/base/threads/wake_up_price.h"

namespace sinew::internal {

/// The threads and the queue of an Executor: which thread runs a task, and when another is woken or
/// started. Thread-safe.
class Executor::Impl final : public TaskRunner,
                             public ProcessLife::Busy,
                             public std::enable_shared_from_this<Impl> {
 public:
  struct Worker {
    Impl* pool = nullptr;
    std::thread thread;
    // Shared with those who wake: this worker may be gone when they get to it.
    const std::shared_ptr<CondVar> wake = std::make_shared<CondVar>();
    // Guarded by the pool's mutex_.
    bool woken = false;
    // Where and when it was, if it was.
    WakeUpPrice::Call call;
    // Touched by the worker's own thread only.
    std::size_t blocking_scopes = 0;
    // Of a helper; or null.
    Helper::Waits* waits = nullptr;
    // Tasks follow the one that it runs.
    bool more_follow = false;
    std::chrono::steady_clock::time_point task_begun;
    int tasks_since_flush = 0;

    Mutex flush_mutex;
    std::vector<std::shared_ptr<Flushable>> flushes ABSL_GUARDED_BY(flush_mutex);
  };

  // Wakes workers when it goes, which is to be after the mutex: a thread that is woken under it
  // may run at once, in the place of the one that holds it, and would only wait for it.
  class Wakeups {
   public:
    Wakeups() = default;
    ~Wakeups() { notify(); }
    Wakeups(const Wakeups&) = delete;
    Wakeups& operator=(const Wakeups&) = delete;
    void add(const Worker& worker) { workers_.push_back(worker.wake); }
    void notify() {
      for (const auto& worker : workers_) worker->notify_one();
      workers_.clear();
    }

   private:
    absl::InlinedVector<std::shared_ptr<CondVar>, 2> workers_;
  };

  Impl(Executor* owner, Options options)
      : owner_(owner),
        options_(std::move(options)),
        price_(WakeUpPrice::of_host()),
        rules_(std::max<std::size_t>(options_.num_threads, 1), price_.now()) {
    ProcessLife::add(this);
  }

  Executor* owner() const { return owner_; }

  bool post(Task task) override {
    if (is_orphan()) return false;
    Wakeups wakeups;
    MutexLock lock(mutex_);
    if (stopping_) return false;
    queue_.push_back(std::move(task));
    carry_out_locked(rules_.post(1, helper_offered()), wakeups);
    return true;
  }

  bool post_all(std::vector<Task> tasks) {
    if (is_orphan()) return false;
    Wakeups wakeups;
    MutexLock lock(mutex_);
    if (stopping_) return false;
    queue_.insert(queue_.end(), std::make_move_iterator(tasks.begin()),
                  std::make_move_iterator(tasks.end()));
    carry_out_locked(rules_.post(tasks.size(), helper_offered()), wakeups);
    return true;
  }

  /// Starts threads that wait for tasks.
  void start_minimum();

  bool is_orphan() const override { return process_.is_orphan(); }
  bool stands_still() override;

  void shutdown();
  Stats stats() const;
  bool is_stalled() const {
    MutexLock lock(mutex_);
    return !queue_.empty() && rules_.running() == 0;
  }

  void enter_blocking(const std::function<std::string()>& describe_caller);
  void leave_blocking() {
    MutexLock lock(mutex_);
    rules_.end_wait();
  }

  PollingDuty* polling_duty() const override {
    return polling_duty_.load(std::memory_order_acquire);
  }
  void set_polling_duty(std::shared_ptr<PollingDuty> duty) {
    owned_polling_duty_ = std::move(duty);
    polling_duty_.store(owned_polling_duty_.get(), std::memory_order_release);
  }

  using WorkerPosition = std::list<Worker>::iterator;
  // A helper's worker is in workers_ from being taken on until it has run.
  void run_engaged(Helper::Engagement& engagement);
  Helper::Workload workload() const {
    MutexLock lock(mutex_);
    return {rules_.workload(), rules_.is_brisk()};
  }

  bool flush_later(Worker& worker, const std::shared_ptr<Flushable>& what);
  static void flush(Worker& worker);

  // Which worker the calling thread is. A thread cannot tell its pool otherwise: the functions that
  // wait are called by user code, which passes no executor along.
  static thread_local Worker* this_worker;
  // The helper that offers itself on the calling thread. What is posted there does not come from
  // those who know it.
  static thread_local Helper::State* this_helper;

 private:
  // Threads beyond num_threads that stay for the next blocking wait; starting one costs some 20 us.
  static constexpr std::size_t kSpareThreads = 4;

  void run_worker(Worker& worker);
  void run_tasks(Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void park(Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool watch(Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void flush_all() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static RunRules::Helper helper_offered();
  bool carry_out_locked(RunRules::Wake wake, Wakeups& wakeups)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void wake_to_run_locked(RunRules::Runner runner, Wakeups& wakeups)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void look_at_helper_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void engage_helper_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool start_worker_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool surplus_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return workers_.size() - rules_.blocked() > rules_.num_threads() + kSpareThreads;
  }
  void retire_locked(Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void stand_still_at_exit();

  Executor* const owner_;
  const ProcessBound process_;
  Options options_;
  WakeUpPrice& price_;
  std::shared_ptr<PollingDuty> owned_polling_duty_;
  std::atomic<PollingDuty*> polling_duty_{nullptr};

  mutable Mutex mutex_;
  std::deque<Task> queue_ ABSL_GUARDED_BY(mutex_);
  std::list<Worker> workers_ ABSL_GUARDED_BY(mutex_);
  // Have left workers_ and end without taking mutex_ again; to be joined.
  std::list<Worker> retired_ ABSL_GUARDED_BY(mutex_);
  // Parked workers. The one that parked last is woken first: its cache is warm, and those at the
  // bottom never wake when there is little to do.
  std::vector<Worker*> idle_ ABSL_GUARDED_BY(mutex_);
  RunRules rules_ ABSL_GUARDED_BY(mutex_);
  // On its way here, with tasks of another pool to run before.
  Helper::Engagement* busy_helper_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // Of those that run: they stand still, since the process ends.
  std::size_t standing_ ABSL_GUARDED_BY(mutex_) = 0;
  // The parked worker that wakes now and then, while tasks are left to those that run.
  Worker* watcher_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // The same, for flush_later(), which must not take mutex_.
  std::atomic<bool> watched_{false};
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool joined_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar stopped_;  // workers_ became empty, or joined_ was set
};

struct Executor::Helper::Engagement {
  // The pool that has left it tasks, until they have run.
  std::shared_ptr<Impl> pool;
  // One worker, which is here between two engagements.
  std::list<Impl::Worker> idle{1};
  Impl::WorkerPosition worker = idle.begin();
  // The pool does not count on it any more. Guarded by the pool's mutex_.
  bool is_given_up = false;
};

struct Executor::Helper::State {
  // Handlers and control tasks: what comes together leads to no more pools. The first `engaged` of
  // them, in the order in which they were taken on.
  std::array<Engagement, 2> engagements;
  std::size_t engaged = 0;
};

}  // namespace sinew::internal
