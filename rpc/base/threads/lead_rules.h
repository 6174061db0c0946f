#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sinew::internal {

/// Who polls an event source: the rules of PollingDuty, without a clock, a thread or a lock.
///
/// The duty to poll is free, or with a thread of the source's pool, or with a thread that waits for
/// what an event brings. While it is free it is never unwatched: the thread that lays it down has a
/// parked thread of the pool woken to lead ("promoted"), or leaves a parked one watching, which
/// takes the duty up if it is free for a whole interval.
///
/// How long is long follows from what a wake-up takes.
///
/// Copyable, for tests that look at what may follow from each state.
class LeadRules {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  enum class Leader : std::uint8_t { kNobody, kPool, kWaiter };
  /// Whom the caller has to wake.
  enum class Wake : std::uint8_t { kNobody, kOneParked };
  /// What a parked thread of the pool does next.
  enum class Parked : std::uint8_t {
    /// Until it is woken.
    kSleeps,
    /// Until it is woken, but for an interval at most.
    kWatches,
    kLeads,
    kEnds,
  };

  explicit LeadRules(Duration wake_up);
  /// What a wake-up takes from now on.
  void set_wake_up(Duration wake_up) { wake_up_ = wake_up; }

  // ---- Threads of the pool.

  /// One more. Returns its number.
  int add_thread();
  /// A thread that parks, or is parked and was woken, or has watched for the whole interval.
  Parked park(int thread);
  Parked on_woken(int thread) { return next(thread, false); }
  Parked on_interval_over(int thread) { return next(thread, true); }

  /// Before an event of the pool's leader is handled: whether it runs the tasks that the event
  /// posts. Not without a stand-by: no thread would take the duty up if a task took long. Nor where
  /// events would wait for long tasks.
  bool may_help();
  /// Its first event after it has run tasks, which was there already or had to be waited for.
  /// Returns whether there is likely to be more than this one.
  bool on_event_after_tasks(bool was_there);
  /// It runs tasks of such a length. `are_brisk`: no thread could have helped with them.
  [[nodiscard]] Wake lay_down_for_tasks(Duration length, bool are_brisk);
  /// One of them begins to wait, for as long as it likes. Returns whether the pool is to have
  /// another thread, so that one can lead while one stands by: add_thread() or not_added() follows.
  [[nodiscard]] bool begin_task_wait();
  void not_added() { --coming_; }
  void end_task_wait() { --waiting_; }
  /// It has run them. False: another thread has the duty, and this one parks.
  bool lead_again();
  /// The event has woken a thread in its wait that was asleep.
  void on_woke_waiter() { woke_waiter_ = true; }
  /// It has handled an event that has posted no tasks. True: a wait that is likely to begin soon,
  /// and not to last, takes the duty, and it parks.
  bool lay_down_for_waiter(TimePoint now);
  /// The source has ended. All that are parked are to be woken.
  void end();

  // ---- Threads that wait.

  /// Returns the number of the wait.
  int begin_wait(TimePoint now);
  /// Whether the wait takes the duty.
  bool take_for_wait();
  /// A wait that has the duty has handled an event. False: it has lain it down, since it lasts.
  bool may_lead_on(TimePoint begun, TimePoint now, Wake& wake);
  /// `leads`: it has the duty, and lays it down.
  [[nodiscard]] Wake end_wait(int wait, bool leads, TimePoint now);

  /// From here on only the pool leads. A wait that does is to be interrupted.
  void close() { closed_ = true; }

  Leader leader() const { return leader_; }
  bool is_closed() const { return closed_; }
  bool is_ended() const { return ended_; }

  /// Appends what this state is: two with the same key differ in the averages at most, within the
  /// same side of their bounds.
  void append_key(TimePoint now, std::string& key) const;

 private:
  struct Wait {
    int number = 0;
    TimePoint begun;
  };

  Parked next(int thread, bool interval_is_over);
  void take(Leader leader);
  void lay_down();
  Wake promote();
  bool is_young(std::size_t place_from_the_youngest, TimePoint now) const;

  Duration wake_up_;
  Leader leader_ = Leader::kNobody;
  // A thread of the pool is to lead as soon as one is there, unless another thread is first.
  bool promoted_ = true;
  bool closed_ = false;
  bool ended_ = false;
  // One of the parked threads is to watch.
  bool watch_ = false;
  // The one that does, or -1; and how often the duty had changed hands when it began.
  int watcher_ = -1;
  std::uint64_t watched_since_ = 0;
  // How often the duty was taken up or laid down.
  std::uint64_t changes_ = 0;
  std::size_t parked_ = 0;
  // Of the pool; and those that are being started.
  int threads_ = 0;
  int coming_ = 0;
  // Threads of the pool that run tasks; and those of them whose task waits.
  int away_ = 0;
  int waiting_ = 0;

  // In the order in which they began.
  std::vector<Wait> waits_;
  int next_wait_ = 0;
  TimePoint last_wait_ended_;
  // Between the end of a wait and the beginning of the next one; weighted towards the latest.
  Duration average_gap_;
  // How long waits last; weighted towards the latest, each no more than twice a long one.
  Duration average_wait_;
  bool woke_waiter_ = false;
  // How often an event was there already when the pool's leader was back from its tasks, 1 being
  // always.
  double crowding_ = 0;
  // The last ones that it ran.
  bool tasks_are_brisk_ = true;
};

}  // namespace sinew::internal
