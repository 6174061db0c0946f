#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace sinew::internal {

/// Which thread of an executor runs a task, and when another one is woken or started for it: the
/// rules of Executor, without a clock, a thread or a lock.
///
/// A thread of the executor is parked, watches, is on its way, runs, or is blocked in a wait. Where
/// tasks have been short lately they are left to the threads that run, as long as these are through
/// with them sooner than another one would be awake. Then a parked thread watches: if for an
/// interval no task begins, it runs itself. So no task lies for longer than two intervals while
/// fewer than `num_threads` run.
///
/// A helper, which is no thread of the executor, may run what it has posted itself: it counts as a
/// thread on its way. One that has tasks of another executor to run before is watched, and given up
/// if it does not come.
///
/// Copyable, for tests that look at what may follow from each state.
class RunRules {
 public:
  using Duration = std::chrono::nanoseconds;

  enum class Helper : std::uint8_t { kNone, kFree, kBusy };
  enum class Runner : std::uint8_t {
    kNobody,
    kParked,
    /// The one that watches.
    kWatcher,
    kNewThread,
    kHelper,
  };
  /// Whom the caller has to wake.
  struct Wake {
    /// To run.
    Runner runner = Runner::kNobody;
    /// Before that, a parked one that is to watch.
    bool one_to_watch = false;
  };

  RunRules(std::size_t num_threads, Duration wake_up)
      : num_threads_(num_threads), wake_up_(wake_up), average_task_(wake_up) {}
  /// What it takes from now on until a parked thread runs.
  void set_wake_up(Duration wake_up) { wake_up_ = wake_up; }

  // ---- Tasks.

  /// `helper`: what the thread that posts offers.
  [[nodiscard]] Wake post(std::size_t tasks, Helper helper);
  /// Whether a thread that runs takes the next task; if not, it stops running.
  bool may_take() const { return queued_ > 0 && running_ <= num_threads_; }
  struct Taken {
    Wake wake;
    /// Others are queued, and watched: what this one would send may wait for theirs.
    bool more_follow = false;
  };
  [[nodiscard]] Taken take();
  void ran(Duration time) { average_task_ += (time - average_task_) / 8; }

  // ---- Threads that run.

  /// One that was to be woken, or started, is there.
  void arrive() { --waking_; }
  /// One is started to wait for tasks.
  void start() { static_cast<void>(to_run(Runner::kNewThread, Wake())); }
  /// The new thread could not be started. False: no thread runs, so none will ever be started.
  bool not_started();
  void stop() { --running_; }
  /// A helper is there that was not given up.
  void helper_arrives(bool was_busy);
  /// One that was not woken, or that was given up.
  void join() { ++running_; }
  /// The running task begins to wait. Another thread takes its place if there is something to do.
  [[nodiscard]] Wake begin_wait();
  /// It has ended; or could not begin.
  void end_wait();

  // ---- Threads that do not.

  void park() { ++parked_; }
  void begin_interval();
  enum class Watch : std::uint8_t { kGoesOn, kParks, kRuns };
  /// The thread that watches has not been woken for an interval. kParks: it is to park().
  [[nodiscard]] Watch end_interval();
  /// One is to end. kNobody: none is parked or watches.
  [[nodiscard]] Runner wake_to_end();

  std::size_t num_threads() const { return num_threads_; }
  std::size_t running() const { return running_; }
  std::size_t waking() const { return waking_; }
  std::size_t blocked() const { return blocked_; }
  bool is_watched() const { return is_watched_; }
  /// Whether a helper that was busy is still counted on; if not, it join()s when it comes.
  bool counts_on_busy_helper() const { return helper_is_busy_; }
  /// Whether the threads that run are through with the queue before another would be of use.
  bool is_brisk() const;
  /// What is queued, going by the latest tasks.
  Duration workload() const { return queued_ * average_task_; }

  /// Appends what this state is, but for how long tasks take.
  void append_key(std::string& key) const;

 private:
  Wake add_runner(Helper helper);
  bool have_watched(Wake& wake);
  void stop_watching();
  Wake to_run(Runner who, Wake wake);

  std::size_t num_threads_;
  Duration wake_up_;
  std::size_t queued_ = 0;
  std::size_t parked_ = 0;
  // Threads that are neither parked nor blocked, with those on their way. At most num_threads, but
  // for threads that come back from a wait.
  std::size_t running_ = 0;
  // Of those, the ones that were woken and have not got here yet.
  std::size_t waking_ = 0;
  std::size_t blocked_ = 0;
  // One of those on their way is a helper with something else to do before.
  bool helper_is_busy_ = false;
  // A parked thread wakes now and then, while tasks are left to others.
  bool is_watched_ = false;
  // They were since it looked.
  bool left_to_others_ = false;
  std::uint64_t tasks_started_ = 0;
  std::uint64_t started_before_ = 0;
  // Of what the last tasks took, weighted towards the latest.
  Duration average_task_;
};

}  // namespace sinew::internal
