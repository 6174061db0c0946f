#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/tests/support/manual_clock.h"

namespace sinew::internal::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using TimePoint = Clock::TimePoint;

/// Whatever happens in a simulation is drawn from here, so that a seed repeats it.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : random_(seed) {}
  /// Nothing happens by chance, and everything takes the shortest time.
  static Chance none() {
    Chance chance(0);
    chance.is_none_ = true;
    return chance;
  }
  /// From 0 to `n` - 1.
  std::size_t below(std::size_t n) { return is_none_ ? n - 1 : random_() % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  nanoseconds between(nanoseconds from, nanoseconds to) {
    if (is_none_) return from;
    const auto span = static_cast<std::uint64_t>((to - from).count()) + 1;
    return from + nanoseconds(static_cast<std::int64_t>(random_() % span));
  }

 private:
  std::mt19937_64 random_;
  bool is_none_ = false;
};

/// Called before each step that is not within one process: a message arrives, or an operation of
/// the file is done. Processes may be killed and stopped meanwhile. How much later it comes; zero:
/// now.
using OnStep = std::function<nanoseconds()>;

/// A process of the simulation: it runs tasks and timers, can be stopped and goes on where it was,
/// and can be killed. Everything is an event of the one clock, so nothing ever runs inside anything
/// else.
class Process final : public TaskRunner,
                      public Timers,
                      public std::enable_shared_from_this<Process> {
 public:
  enum class State { kRunning, kStopped, kDead };

  Process(testing::ManualClock& clock, int host, WorkerInfo self, std::string address)
      : clock_(clock), host_(host), self_(std::move(self)), address_(std::move(address)) {}

  bool post(Task task) override {
    if (state_ == State::kDead) return false;
    run_at(clock_.now(), std::move(task));
    return true;
  }
  TimerId run_at(TimePoint when, Task task) override {
    return clock_.run_at(when, [weak = weak_from_this(), task = std::move(task)]() mutable {
      if (const auto self = weak.lock()) self->run(std::move(task));
    });
  }
  bool cancel(TimerId id) override { return clock_.cancel(id); }

  void stop() {
    if (state_ == State::kRunning) state_ = State::kStopped;
  }
  void go_on() {
    if (state_ != State::kStopped) return;
    state_ = State::kRunning;
    // In the order in which they were due.
    while (!waiting_.empty() && state_ == State::kRunning) {
      Task task = std::move(waiting_.front());
      waiting_.pop_front();
      std::move(task)();
    }
  }
  void kill() {
    state_ = State::kDead;
    waiting_.clear();
  }

  State state() const { return state_; }
  bool runs() const { return state_ == State::kRunning; }
  bool is_dead() const { return state_ == State::kDead; }
  int host() const { return host_; }
  /// Without a rank.
  const WorkerInfo& self() const { return self_; }
  const std::string& address() const { return address_; }

 private:
  void run(Task task) {
    if (state_ == State::kStopped) {
      waiting_.push_back(std::move(task));
    } else if (state_ == State::kRunning) {
      std::move(task)();
    }
  }

  testing::ManualClock& clock_;
  const int host_;
  const WorkerInfo self_;
  const std::string address_;
  State state_ = State::kRunning;
  std::deque<Task> waiting_;
};

}  // namespace sinew::internal::sim
