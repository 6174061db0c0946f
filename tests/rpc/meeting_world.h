#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/membership/quiescence.h"
#include "sinew/rpc/membership/scheduler.h"
#include "sinew/tests/support/manual_clock.h"

namespace sinew::internal {

template <class T>
std::string error_of(const Future<T>& future) {
  if (!future.done()) return "pending";
  return future.error() == nullptr ? "ok" : std::string(to_status(future.error()).message());
}

/// A runner whose tasks run in run_until_idle(), in the thread of its caller: in order, or with a
/// seed in an order drawn from it.
class StepRunner final : public TaskRunner {
 public:
  StepRunner() = default;
  explicit StepRunner(std::uint32_t seed) : random_(seed) {}

  bool post(Task task) override {
    tasks_.push_back(std::move(task));
    return true;
  }
  void run_until_idle() {
    while (!tasks_.empty()) {
      const std::size_t index = random_ ? (*random_)() % tasks_.size() : 0;
      Task task = std::move(tasks_[index]);
      tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(index));
      std::move(task)();
    }
  }

 private:
  std::deque<Task> tasks_;
  std::optional<std::mt19937> random_;
};

/// Members that meet, on one thread and a clock of the test: the n-th gather of each meets the n-th
/// of the others, and ends when all that are not lost have come.
class MeetingWorld {
 public:
  explicit MeetingWorld(const std::vector<std::string>& names)
      : MeetingWorld(names, std::make_shared<StepRunner>()) {}
  MeetingWorld(const std::vector<std::string>& names, std::uint32_t seed)
      : MeetingWorld(names, std::make_shared<StepRunner>(seed)) {}
  // Tasks that never run would keep what they refer to.
  ~MeetingWorld() { run(); }

  GatherRound gather_of(std::size_t worker) {
    return [this, worker](const std::vector<std::string>&, std::string value,
                          std::chrono::nanoseconds) {
      const Promise<std::vector<std::string>> answer(nullptr);
      runner->post([this, worker, value = std::move(value), answer] {
        rounds_[came_[worker]++][worker] = {value, answer};
        complete();
      });
      return answer.future();
    };
  }
  void run() { runner->run_until_idle(); }
  void advance(std::chrono::nanoseconds time) {
    constexpr auto kStep = std::chrono::milliseconds(10);
    run();
    for (std::chrono::nanoseconds done{}; done < time; done += kStep) {
      clock.advance(kStep);
      run();
    }
  }
  void lose(std::size_t worker) {
    is_lost_[worker] = true;
    complete();
  }

  std::shared_ptr<StepRunner> runner;
  testing::ManualClock clock;
  Scheduler scheduler;

 private:
  struct Entry {
    std::string value;
    Promise<std::vector<std::string>> answer;
  };

  MeetingWorld(const std::vector<std::string>& names, std::shared_ptr<StepRunner> step_runner)
      : runner(std::move(step_runner)),
        scheduler(runner, clock, clock),
        came_(names.size()),
        is_lost_(names.size()) {}

  void complete() {
    for (auto round = rounds_.begin(); round != rounds_.end();) {
      std::vector<std::string> values(came_.size());
      bool is_complete = true;
      for (std::size_t i = 0; i < came_.size(); ++i) {
        const auto entry = round->second.find(i);
        if (entry != round->second.end()) values[i] = entry->second.value;
        is_complete = is_complete && (is_lost_[i] || entry != round->second.end());
      }
      if (!is_complete) {
        ++round;
        continue;
      }
      for (const auto& [worker, entry] : round->second) {
        runner->post([answer = entry.answer, values] { answer.set_value(values); });
      }
      round = rounds_.erase(round);
    }
  }

  std::map<std::size_t, std::map<std::size_t, Entry>> rounds_;
  std::vector<std::size_t> came_;
  std::vector<bool> is_lost_;
};

}  // namespace sinew::internal
