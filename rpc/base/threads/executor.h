#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "sinew/rpc/base/threads/flushable.h"

namespace sinew::internal {

class PollingDuty;

using Task = absl::AnyInvocable<void() &&>;

/// Where tasks can be handed to. May outlive the threads behind it: from then on it refuses.
class TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  /// Queues `task`; never runs it inside this call. Returns false, and destroys the task unrun,
  /// when tasks are no longer taken. Thread-safe.
  virtual bool post(Task task) = 0;
  /// What brings the outcomes that the runner's tasks and callbacks wait for; null when other
  /// threads see to that by themselves.
  virtual PollingDuty* polling_duty() const { return nullptr; }
  /// The threads are those of the process that this one was forked from: nothing will ever run.
  virtual bool is_orphan() const { return false; }
};

/// A pool of threads that runs handlers and continuations in the order in which they were posted.
/// A task that blocks in a Sinew wait does not take a thread from the pool: see `BlockingScope`.
///
/// Tasks that have been short lately are left to the threads that run already as long as these are
/// through with them sooner than another thread would be awake. A task that turns out to be long
/// after all holds up those behind it for two milliseconds at most: a parked thread watches.
///
/// Thread-safe. Tasks must not throw (a task that does ends the process with a message, as a thread
/// would).
class Executor {
 public:
  struct Options {
    /// Threads that run tasks when none is blocked; at least 1. They start with the first tasks.
    std::size_t num_threads = 4;
    /// Threads that are there from the beginning: tasks may depend on each other, but none waits
    /// for a thread that the system does not give. The constructor throws RpcError
    /// kResourceExhausted when they cannot be started. At most num_threads.
    std::size_t min_threads = 0;
    /// How many tasks may be blocked in a wait at once; one more fails with kResourceExhausted.
    std::size_t max_blocked_threads = 256;
    /// Shown by the system's tools, cut to 15 characters.
    std::string name = "sinew";
    /// Starts a thread that runs the function; throws std::system_error if it cannot. Null:
    /// std::thread. For programs that pin or count their threads, and for tests.
    std::function<std::thread(std::function<void()>)> start_thread;
  };

  struct Stats {
    std::size_t threads = 0;
    std::size_t idle_threads = 0;
    std::size_t blocked_threads = 0;
    /// Those that run tasks, or are on their way to, and how many may.
    std::size_t running_threads = 0;
    std::size_t num_threads = 0;
    std::size_t queued_tasks = 0;
  };

  explicit Executor(Options options);
  /// Same as shutdown(). In a forked child there is nothing to shut down, and nothing is done.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Queues `task`. Returns false, and destroys the task unrun, after shutdown() has begun.
  bool post(Task task);
  /// Queues all of `tasks` at once, with one lock and no more wake-ups than are useful.
  bool post_all(std::vector<Task> tasks);

  /// Lets those who wait for what this executor's worker receives poll for it: see FutureCore. Once
  /// at most.
  void set_polling_duty(std::shared_ptr<PollingDuty> duty);

  /// A handle for those who may outlive this object, such as futures. It does not keep the threads.
  const std::shared_ptr<TaskRunner>& runner() const;

  /// Refuses new tasks, runs those that are queued, and joins the threads. Must not be called from
  /// one of its own threads (ends the process with a message). Idempotent.
  void shutdown();

  Stats stats() const;
  /// True when queued work cannot move on because every thread sits in a wait and no further thread
  /// can be started: the pool is deadlocked. False while threads merely compute.
  bool is_stalled() const;

  /// The executor whose task the calling thread runs, or null.
  static Executor* current();

  /// Asks the calling thread to flush `what` after some of the tasks that follow the one that it
  /// runs; if those take long, another thread does within two milliseconds. Returns false, and
  /// forgets `what`, when no tasks follow, the running one has been long, or the caller runs none:
  /// then the caller flushes.
  static bool flush_later(const std::shared_ptr<Flushable>& what);

  /// Makes the calling thread none of an executor's for its lifetime, as far as this class is
  /// concerned: for what it does in the place of another thread.
  class DetachedScope {
   public:
    DetachedScope();
    ~DetachedScope();
    DetachedScope(const DetachedScope&) = delete;
    DetachedScope& operator=(const DetachedScope&) = delete;

   private:
    void* const worker_;
  };

  /// A thread that is not the executor's, and now and then runs the tasks which it has posted.
  /// Belongs to that thread.
  class Helper {
   public:
    /// Is told, by the helper's thread, when one of the tasks that it runs begins to wait, and ends
    /// to: marks itself as blocked, see BlockingScope.
    class Waits {
     public:
      virtual void begin_task_wait() = 0;
      virtual void end_task_wait() = 0;

     protected:
      ~Waits() = default;
    };

    /// `waits` outlives this, or is null.
    explicit Helper(Waits* waits = nullptr);
    ~Helper();
    Helper(const Helper&) = delete;
    Helper& operator=(const Helper&) = delete;

    /// While one lives, the first two executors that need a thread for what the calling thread
    /// posts leave it to that, rather than wake one of their own. Then run() must follow soon: the
    /// thread counts as one that is on its way.
    class Offer {
     public:
      /// Null: offers nothing.
      explicit Offer(Helper* helper);
      ~Offer();
      Offer(const Offer&) = delete;
      Offer& operator=(const Offer&) = delete;
    };

    struct Workload {
      std::chrono::nanoseconds duration{0};
      /// Many short tasks at most, which one thread does best.
      bool is_brisk = true;
    };

    bool has_tasks() const;
    /// What run() is likely to be, going by the latest tasks.
    Workload workload() const;
    /// Runs tasks of the executors that have left it some, as one of their threads, one executor
    /// after the other, until there are no more. Should those of the first take long, a thread of
    /// the second one's takes its own up within two milliseconds.
    void run();

   private:
    friend class Executor;
    struct Engagement;
    struct State;
    const std::unique_ptr<State> state_;
  };

  /// Marks the calling thread as blocked for its lifetime: while it lives the executor runs another
  /// thread in this one's place. Does nothing on a thread that runs no task of an executor, nor
  /// inside another BlockingScope. Throws RpcError kResourceExhausted when `max_blocked_threads`
  /// are blocked already or the thread that is needed cannot be started; the text shows
  /// `describe_caller()`, the chain of calls that led here, unless it is null.
  class BlockingScope {
   public:
    explicit BlockingScope(const std::function<std::string()>& describe_caller = nullptr);
    ~BlockingScope();
    BlockingScope(const BlockingScope&) = delete;
    BlockingScope& operator=(const BlockingScope&) = delete;
  };

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
  const std::shared_ptr<TaskRunner> runner_;
};

}  // namespace sinew::internal
