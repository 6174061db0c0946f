#include "sinew/tests/threads/support/host_model.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>

namespace sinew::internal::sim {
namespace {

using std::chrono::microseconds;

// Linux: the time between two looks of the scheduler, how much of it a thread that has slept gets
// back, and how much it must be behind to take another one's place when it wakes.
constexpr int kTick = 4000;
constexpr int kTurn = 3000;
constexpr int kPreempts = 1000;
// What it takes a core to go over to another thread.
constexpr int kSwitch = 2;
// How long the host takes a core away at a time.
constexpr int kStolenAtATime = 300;

PollPolicy::TimePoint at(int now) {
  return PollPolicy::TimePoint(microseconds(now)) + std::chrono::hours(1);
}

/// One of the host's threads: a caller, a server, or one that computes.
struct Thread {
  enum class Role : std::uint8_t { kCaller, kServer, kBusy } role = Role::kBusy;
  enum class State : std::uint8_t { kRunnable, kAsleep, kWaking } state = State::kRunnable;
  enum class Does : std::uint8_t { kComputes, kPolls, kSleeps } does = Does::kComputes;
  std::size_t partner = 0;
  // Who has sent what it has not taken yet.
  std::deque<std::size_t> mail;
  std::size_t serves = 0;
  int computes_until = 0;  // of its own time
  int own_time = 0;
  int wakes_at = 0;
  int wait_begun = 0;
  int poll_until = 0;
  int offered = -1;
  bool gave_core = false;
  bool on_core = false;
  // What the scheduler orders by.
  int virtual_time = 0;
  int calls = 0;
  std::unique_ptr<PollPolicy> policy;
};

class Host {
 public:
  Host(const HostWorld& world, std::optional<int> fixed)
      : world_(world), fixed_(fixed), cores_(static_cast<std::size_t>(world.cores)) {
    const int servers = world.shared_server ? 1 : world.callers;
    for (int i = 0; i < servers; ++i) add(Thread::Role::kServer);
    for (int i = 0; i < world.callers; ++i) {
      add(Thread::Role::kCaller);
      threads_.back().partner = static_cast<std::size_t>(world.shared_server ? 0 : i);
    }
    for (int i = 0; i < world.busy; ++i) add(Thread::Role::kBusy);
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      if (threads_[i].role == Thread::Role::kServer) begin_wait(i);
      if (threads_[i].role == Thread::Role::kCaller) compute(threads_[i], world.think);
    }
  }

  HostWork run(int duration) {
    for (now_ = 0; now_ < duration; ++now_) {
      wake();
      steal();
      schedule();
      for (Core& core : cores_) {
        if (core.thread >= 0 && core.stolen_until <= now_)
          step(static_cast<std::size_t>(core.thread), core);
      }
    }
    return work_;
  }

 private:
  struct Core {
    int thread = -1;
    int stolen_until = 0;
  };

  void add(Thread::Role role) {
    Thread& thread = threads_.emplace_back();
    thread.role = role;
    thread.policy = std::make_unique<PollPolicy>(
        PollPolicy::Duration::max(), role == Thread::Role::kServer ? PollPolicy::Waits::kForOthers
                                                                   : PollPolicy::Waits::kForItself);
  }

  void wake() {
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      Thread& thread = threads_[i];
      if (thread.state != Thread::State::kWaking || thread.wakes_at > now_) continue;
      thread.state = Thread::State::kRunnable;
      // Who has slept does not get all the time back.
      thread.virtual_time = std::max(thread.virtual_time, least_virtual_time() - kTurn);
      preempt(static_cast<int>(i));
    }
  }

  int least_virtual_time() const {
    int least = -1;
    for (const Thread& thread : threads_) {
      if (thread.state == Thread::State::kRunnable && (least < 0 || thread.virtual_time < least))
        least = thread.virtual_time;
    }
    return std::max(least, 0);
  }

  void steal() {
    if (world_.stolen == 0) return;
    const double begins = world_.stolen / (1 - world_.stolen) / kStolenAtATime;
    for (Core& core : cores_) {
      // A host takes a core away from who uses it.
      if (core.thread >= 0 && core.stolen_until <= now_ &&
          std::uniform_real_distribution<double>(0, 1)(random_) < begins) {
        core.stolen_until =
            now_ +
            static_cast<int>(std::exponential_distribution<double>(1.0 / kStolenAtATime)(random_));
      }
    }
  }

  // Of those that could run, the one with the least time.
  int next_runnable() const {
    int best = -1;
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      const Thread& thread = threads_[i];
      if (thread.state != Thread::State::kRunnable || thread.on_core) continue;
      if (best < 0 || thread.virtual_time < threads_[static_cast<std::size_t>(best)].virtual_time)
        best = static_cast<int>(i);
    }
    return best;
  }

  void schedule() {
    for (Core& core : cores_) {
      if (core.thread < 0) put(core, next_runnable());
    }
    // A tick.
    if (now_ % kTick != 0) return;
    for (Core& core : cores_) {
      const int next = next_runnable();
      if (next < 0) return;
      if (virtual_time(next) < virtual_time(core.thread)) change(core, next);
    }
  }

  // One that wakes takes the place of the one that has had the most time.
  void preempt(int woken) {
    Core* loser = nullptr;
    for (Core& core : cores_) {
      if (core.thread < 0) return;
      if (core.stolen_until <= now_ &&
          (loser == nullptr || virtual_time(core.thread) > virtual_time(loser->thread)))
        loser = &core;
    }
    if (loser != nullptr && virtual_time(loser->thread) - virtual_time(woken) > kPreempts)
      change(*loser, woken);
  }

  int virtual_time(int thread) const {
    return threads_[static_cast<std::size_t>(thread)].virtual_time;
  }

  void change(Core& core, int thread) {
    take_off(core);
    put(core, thread);
  }

  void put(Core& core, int thread) {
    core.thread = thread;
    if (thread < 0) return;
    threads_[static_cast<std::size_t>(thread)].on_core = true;
    core.stolen_until = std::max(core.stolen_until, now_ + kSwitch);
  }

  void take_off(Core& core) {
    Thread& thread = threads_[static_cast<std::size_t>(core.thread)];
    thread.on_core = false;
    thread.gave_core = true;
    core.thread = -1;
  }

  // A microsecond of a thread's.
  void step(std::size_t index, Core& core) {
    Thread& thread = threads_[index];
    ++thread.own_time;
    ++thread.virtual_time;
    switch (thread.does) {
      case Thread::Does::kComputes:
        if (thread.role == Thread::Role::kBusy) {
          ++work_.computed;
        } else if (thread.own_time >= thread.computes_until) {
          computed(index);
        }
        break;
      case Thread::Does::kPolls:
        ++(thread.role == Thread::Role::kServer ? work_.polled_for_others : work_.polled);
        look(index, core);
        break;
      case Thread::Does::kSleeps:
        // It is awake.
        if (!fixed_)
          thread.policy->on_slept(microseconds(now_ - thread.wait_begun),
                                  microseconds(polled_of(thread)));
        take_mail(index);
        break;
    }
    if (thread.does == Thread::Does::kSleeps && thread.on_core) {
      thread.on_core = false;
      core.thread = -1;
    }
  }

  int polled_of(const Thread& thread) const {
    return std::max(thread.poll_until - thread.wait_begun, 0);
  }

  void look(std::size_t index, Core& core) {
    Thread& thread = threads_[index];
    if (!fixed_ && thread.offered >= 0) {
      const microseconds away(now_ - thread.offered);
      if (thread.policy->may_be_taken(away) && thread.gave_core) {
        thread.policy->on_core_taken(at(now_), away);
        thread.poll_until = now_;
      }
    }
    thread.offered = -1;
    if (!thread.mail.empty()) {
      if (!fixed_) thread.policy->on_polled(microseconds(now_ - thread.wait_begun));
      take_mail(index);
    } else if (now_ >= thread.poll_until) {
      thread.poll_until = now_;
      sleep(thread);
    } else {
      thread.offered = now_;
      thread.gave_core = false;
      if (const int next = next_runnable(); next >= 0) change(core, next);
    }
  }

  void sleep(Thread& thread) {
    thread.does = Thread::Does::kSleeps;
    thread.state = Thread::State::kAsleep;
  }

  void begin_wait(std::size_t index) {
    Thread& thread = threads_[index];
    if (!thread.mail.empty()) return take_mail(index);
    thread.wait_begun = now_;
    const int poll =
        world_.cores == 1 ? 0
        : fixed_          ? *fixed_
                          : static_cast<int>(
                       thread.policy->begin(at(now_), microseconds(world_.wake_up)).count() / 1000);
    thread.poll_until = now_ + poll;
    thread.offered = -1;
    if (poll > 0) {
      thread.does = Thread::Does::kPolls;
    } else {
      sleep(thread);
    }
  }

  void take_mail(std::size_t index) {
    Thread& thread = threads_[index];
    thread.serves = thread.mail.front();
    thread.mail.pop_front();
    if (thread.role == Thread::Role::kServer) return compute(thread, world_.service);
    ++work_.calls;
    ++thread.calls;
    const bool pauses = world_.pause_each > 0 && thread.calls % world_.pause_each == 0;
    compute(thread, pauses ? world_.pause : world_.think);
  }

  void compute(Thread& thread, int time) {
    thread.does = Thread::Does::kComputes;
    // Sending and taking a message takes a few.
    thread.computes_until = thread.own_time + time + 3;
  }

  void computed(std::size_t index) {
    Thread& thread = threads_[index];
    const std::size_t to = thread.role == Thread::Role::kServer ? thread.serves : thread.partner;
    Thread& other = threads_[to];
    other.mail.push_back(index);
    if (other.state == Thread::State::kAsleep) {
      other.state = Thread::State::kWaking;
      // A core that is at work needs not be woken.
      const bool is_idle = std::any_of(cores_.begin(), cores_.end(),
                                       [](const Core& core) { return core.thread < 0; });
      other.wakes_at = now_ + (is_idle ? world_.wake_up : 1);
    }
    begin_wait(index);
  }

  const HostWorld& world_;
  const std::optional<int> fixed_;
  std::mt19937 random_{1};
  std::deque<Thread> threads_;
  std::vector<Core> cores_;
  HostWork work_;
  int now_ = 0;
};

}  // namespace

HostWork run_host(const HostWorld& world, int duration, std::optional<int> fixed) {
  return Host(world, fixed).run(duration);
}

}  // namespace sinew::internal::sim
