#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/host_limits.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/lead_rules.h"
#include "sinew/rpc/base/threads/poll_policy.h"
#include "sinew/rpc/base/threads/wake_up_price.h"

namespace sinew::internal {

/// Where events come from that a thread has to poll for, such as a completion queue.
class EventSource {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Event {
    enum class Kind { kSomething, kDeadline, kEnd };
    Kind kind = Kind::kDeadline;
    /// Of kSomething; means something to the source only.
    void* tag = nullptr;
    bool ok = false;
  };

  virtual ~EventSource() = default;
  /// Waits for the next event, until `deadline` at the latest; with TimePoint::min() only looks.
  /// kEnd when there will be none any more. Called by one thread at a time.
  virtual Event next(TimePoint deadline) = 0;
  /// Does what `event`, of kSomething, asks for. Runs no user code and does not block.
  virtual void handle(const Event& event) = 0;
  /// Brings about an event that asks for nothing. Thread-safe; not called after next() may have
  /// returned kEnd.
  virtual void interrupt() = 0;
  /// Has another thread call serve() of the source's PollingDuty. False when there can be none.
  /// Thread-safe; called by threads in serve() only.
  virtual bool add_thread() = 0;
};

class PollingWait;

/// Which thread polls an event source: one at a time, its leader (the leader/followers pattern:
/// Schmidt, Stal, Rohnert, Buschmann: Pattern-Oriented Software Architecture 2).
///
/// To wake a thread takes longer than all else that a short call does, so the thread that gets an
/// event should need no other one. Hence two kinds of threads lead:
/// - those of the source's own pool, which run the tasks that an event has posted to executors, and
/// - those that wait for the outcome of a call, which then is brought by themselves.
/// A leader with something better to do lays the duty down. As long as it is likely to be back soon
/// it wakes no successor; a parked thread of the pool watches, and takes the duty up when it has
/// lain for one to two milliseconds. Otherwise a thread of the pool is woken to lead. For a thread
/// whose task waits the pool has another one. The rules are LeadRules, how long a leader polls
/// before it sleeps is up to PollPolicy; docs/threads.md.
///
/// Thread-safe.
class PollingDuty final : private ProcessLife::Busy, private Executor::Helper::Waits {
 public:
  using TimePoint = EventSource::TimePoint;

  /// `source` must outlive the last serve() and close(). The leader polls it for up to `max_poll`
  /// before sleeping, where that pays (see PollPolicy) and `has_core` says that the process has a
  /// core for it. `price`: what a wake-up takes.
  PollingDuty(EventSource* source, std::chrono::nanoseconds max_poll,
              bool (*has_core)(TimePoint now) = &has_core_to_spare,
              const WakeUpPrice& price = WakeUpPrice::of_host());
  ~PollingDuty() override;
  PollingDuty(const PollingDuty&) = delete;
  PollingDuty& operator=(const PollingDuty&) = delete;

  /// Takes part with the calling thread, as one of the pool's, until the source's end.
  void serve();

  /// From here on only the pool leads. Returns when no waiting thread does.
  void close();

  /// Makes the poll() of a waiting thread return: what it waits for has arrived from elsewhere.
  void interrupt();
  /// An event has woken a thread in its PollingWait that was asleep. For the thread that handles
  /// it.
  void woke_waiter();

  struct Stats {
    /// Something came while a thread polled before sleeping.
    std::int64_t polls_paid = 0;
    /// Nothing did, and it slept.
    std::int64_t polls_in_vain = 0;
    /// The time that both took.
    std::chrono::nanoseconds polled{0};
  };
  Stats stats() const;

 private:
  friend class PollingWait;

  EventSource::Event next(PollPolicy& policy, TimePoint deadline);
  std::optional<EventSource::Event> poll(PollPolicy& policy, TimePoint begun, TimePoint until);
  void count(std::atomic<std::int64_t>& polls, std::chrono::nanoseconds polled);
  void look_up() override;
  bool stands_still() override;
  void begin_task_wait() override;
  void end_task_wait() override;
  void stand_still_at_exit();
  bool await_lead(int thread);
  void lead_pool(Executor::Helper& helper);
  void on_source_ended();
  bool may_help();
  bool on_event_after_tasks();
  void handle_more();
  bool run_tasks(Executor::Helper& helper);
  bool lay_down_for_waiter();
  int begin_wait(TimePoint now);
  bool take_for_wait();
  bool may_lead_on(TimePoint begun);
  void end_wait(int number, bool leads);
  // What follows from a change of the rules.
  void carry_out_locked(LeadRules::Wake wake) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  EventSource* const source_;
  // Of the leader.
  PollPolicy pool_polls_;
  PollPolicy waiter_polls_;
  bool (*const has_core_)(TimePoint now);
  const WakeUpPrice& price_;
  // The last event did not have to be waited for.
  bool was_there_ = false;
  // Written by the leader.
  std::atomic<std::int64_t> polls_paid_{0};
  std::atomic<std::int64_t> polls_in_vain_{0};
  std::atomic<std::int64_t> polled_ns_{0};

  Mutex mutex_;
  CondVar changed_;      // for the pool's parked threads
  CondVar waiter_left_;  // no waiting thread leads any more, and none will
  LeadRules rules_ ABSL_GUARDED_BY(mutex_);
  // The leader stands still, since the process ends.
  bool stands_still_ ABSL_GUARDED_BY(mutex_) = false;
};

/// Of a thread that waits for something that an event brings.
class PollingWait {
 public:
  /// `duty` may be null, and outlives this otherwise.
  explicit PollingWait(PollingDuty* duty);
  /// Lays the duty down.
  ~PollingWait();
  PollingWait(const PollingWait&) = delete;
  PollingWait& operator=(const PollingWait&) = delete;

  /// Whether the calling thread is to poll(), rather than to sleep: no other thread leads, or it
  /// leads already and has not waited for long.
  bool lead();
  /// Waits for an event until `deadline` and handles it. After lead() only.
  void poll(PollingDuty::TimePoint deadline);

 private:
  PollingDuty* const duty_;
  PollingDuty::TimePoint begun_;
  int number_ = -1;
  bool leads_ = false;
  bool has_polled_ = false;
  bool weary_ = false;
};

}  // namespace sinew::internal
