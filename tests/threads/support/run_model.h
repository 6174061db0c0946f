#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sinew/rpc/base/threads/run_rules.h"

namespace sinew::internal::sim {

/// What may happen to the threads of an executor.
struct RunWorld {
  std::size_t num_threads = 1;
  /// Threads that are parked from the beginning.
  std::size_t parked = 1;
  /// Tasks that may be posted, of each kind.
  int short_tasks = 2;
  int endless_tasks = 0;
  int waiting_tasks = 0;
  /// Whether a helper posts, too.
  bool helper = true;
  /// How many intervals pass.
  int ticks = 2;
  /// Whether the executor is shut down at some time.
  bool ends = false;
};

/// The threads of an executor and a helper, which do what Executor::Impl has threads do, step by
/// step. Copyable.
class RunModel {
 public:
  explicit RunModel(const RunWorld& world);

  /// Calls `visit` with each state that may come next, and what led there.
  using Visit = std::function<void(const RunModel& next, const std::string& step)>;
  void each_next(const Visit& visit) const;
  /// Which rule does not hold in this state; empty if all do.
  std::string broken() const;
  /// Lets the threads go on fairly without anything new. Which task lies, or which thread does not
  /// rest, then; empty if none.
  std::string settle() const;
  std::string key() const;

 private:
  enum class Task : std::uint8_t { kShort, kEndless, kWaiting };
  struct Thread {
    enum class State : std::uint8_t {
      kNone,
      kOnItsWay,
      kTakes,
      kRuns,
      kWaits,
      /// Back from its wait.
      kReturned,
      kParks,
      kParked,
      kToldToWatch,
      kWatches,
      kToldToRun,
      kEnded,
    } state = State::kNone;
    Task task = Task::kShort;
    /// Of one that watches: the interval is over.
    bool is_over = false;
  };
  struct HelperThread {
    enum class State : std::uint8_t { kNone, kBusy, kOnItsWay, kTakes, kRuns } state;
    Task task = Task::kShort;
    /// The one that was busy, and is counted on.
    bool is_expected = false;
    bool is_given_up = false;
  };

  void post(Task task, RunRules::Helper helper);
  void carry_out(RunRules::Wake wake);
  bool may_step(const Thread& thread) const;
  void step(Thread& thread);
  void take(Thread& thread);
  void finish(Thread& thread);
  void interval_over(Thread& thread);
  bool may_step_helper() const;
  void step_helper();
  bool may_return(const Thread& thread) const;
  void look_at_helper();
  void tick();
  void end();
  Thread* find(Thread::State state);
  std::size_t count(Thread::State state) const;
  bool step_any();
  std::string unsettled() const;

  RunWorld world_;
  RunRules rules_;
  std::vector<Task> queue_;
  std::array<Thread, 5> threads_;
  HelperThread helper_{};
  bool ended_ = false;
};

/// Visits all states that can be reached; what is broken in one, and the steps that led there, or
/// empty. `states`, if not null: how many there were.
std::string explore(const RunWorld& world, std::size_t* states);

}  // namespace sinew::internal::sim
