#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "sinew/rpc/base/threads/lead_rules.h"

namespace sinew::internal::sim {

/// What may happen to the threads of a model.
struct LeadWorld {
  /// Waits of each of the two threads that wait.
  int waits = 1;
  /// Tasks that events bring, and which of them may come.
  int tasks = 1;
  bool long_tasks = true;
  /// Whether tasks that were to be short may never end.
  bool endless_tasks = true;
  /// Whether there are tasks that wait, some for ever; then those that never end otherwise are left
  /// out.
  bool waiting_tasks = false;
  /// No further thread can be started for the pool.
  bool has_no_room = false;
  /// How many half milliseconds pass.
  int ticks = 4;
  /// Whether only the pool is to lead at some time, and the source ends.
  bool closes = false;
};

/// Two threads of a pool, with those that are added to it, and two that wait, which do what
/// PollingDuty has threads do, step by step. Copyable.
class LeadModel {
 public:
  explicit LeadModel(const LeadWorld& world);

  /// Calls `visit` with each state that may come next, and what led there.
  using Visit = std::function<void(const LeadModel& next, const std::string& step)>;
  void each_next(const Visit& visit) const;
  /// Which rule does not hold in this state; empty if all do.
  std::string broken() const;
  /// Lets the threads go on fairly without anything new, but the answers that are waited for.
  /// Which event was not handled, or which thread does not rest, then; empty if none.
  std::string settle() const;
  /// Two states with the same one are the same, as far as their futures differ by averages only.
  std::string key() const;

 private:
  using TimePoint = LeadRules::TimePoint;
  enum class Task : std::uint8_t {
    kNone,
    kShort,
    kLong,
    kEndless,
    kLongEndless,
    kWaits,
    kWaitsForEver
  };

  struct Event {
    enum class Kind : std::uint8_t { kAnswer, kTask, kNothing, kEnd } kind = Kind::kNothing;
    int waiter = 0;
    Task task = Task::kNone;
  };
  struct PoolThread {
    enum class State : std::uint8_t {
      kNotStarted,
      kToPark,
      kParked,
      kLeads,
      kHandles,
      kRuns,
      kEnded
    } state = State::kNotStarted;
    LeadRules::Parked parked = LeadRules::Parked::kSleeps;
    bool signalled = false;
    TimePoint until;
    Event event;
    bool helps = false;
    bool ran_tasks = false;
    Task task = Task::kNone;
    bool task_waits = false;
  };
  struct Waiter {
    enum class State : std::uint8_t { kIdle, kDecides, kAsleep, kLeads, kHandles } state;
    int waits_left = 0;
    int number = -1;
    TimePoint begun;
    Event event;
    bool asked = false;
    bool answered = false;
    bool leads = false;
    bool has_polled = false;
    bool weary = false;
  };

  bool may_step_pool(std::size_t thread) const;
  void step_pool(std::size_t thread);
  void on_parked(PoolThread& thread, LeadRules::Parked next);
  void start_thread();
  void go_on(PoolThread& thread);
  void take_event(PoolThread& thread);
  void finish_event(PoolThread& thread);
  bool may_step_waiter(std::size_t waiter) const;
  void step_waiter(std::size_t waiter);
  void decide(Waiter& waiter);
  void handle(const Event& event, const Waiter* by);
  bool step_any();
  void answer_by_event(std::size_t waiter);
  void answer_elsewhere(std::size_t waiter);
  void wake(LeadRules::Wake wake);
  void close();
  bool has_event() const { return !events_.empty(); }
  Event pop();
  std::string unsettled() const;
  void each_input(const Visit& visit) const;

  LeadWorld world_;
  LeadRules rules_{std::chrono::microseconds(30)};
  TimePoint now_{std::chrono::seconds(1)};
  std::deque<Event> events_;
  std::array<PoolThread, 4> pool_;
  std::array<Waiter, 2> waiters_{};
  // Wakes one of the parked threads, whichever.
  int signals_ = 0;
  bool closed_ = false;
  bool ended_ = false;
};

/// Visits all states that can be reached; what is broken in one, and the steps that led there, or
/// empty. `states`, if not null: how many there were.
std::string explore(const LeadWorld& world, std::size_t* states);

}  // namespace sinew::internal::sim
