#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sinew/tests/process/churn_methods.h"

namespace churn {

/// What the work of a worker has come to so far. Thread-safe.
class Tally {
 public:
  void right() { ++right_; }
  /// That is never to happen: told at once.
  void wrong(const std::string& what);
  /// The error counts as one that a loss explains, or is told at once.
  void failed(const sinew::RpcError& error, const std::string& what);
  /// "right=10 UNAVAILABLE=2"
  std::string text() const;

 private:
  std::atomic<std::int64_t> right_{0};
  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t> errors_;
};

/// Writes a line that begins with "event " to stdout.
void tell(const std::string& event);

/// Calls others at random until it is stopped, makes references at them, uses them, has third ones
/// use and keep them, and gives them up. Checks all that comes back.
class Work {
 public:
  /// `pause` is the mean time between two actions of one of its threads.
  Work(sinew::Worker worker, std::chrono::milliseconds pause, Tally& tally);
  /// Stops; the references go.
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

 private:
  static constexpr int kThreads = 3;
  /// What one of its threads has.
  struct Hand {
    std::mt19937_64 random;
    std::vector<std::pair<sinew::RRef<Token>, std::int64_t>> held;
  };

  void run(Hand& hand);
  void act(Hand& hand);
  void call(Hand& hand);
  void make(Hand& hand);
  void use(Hand& hand);
  void share(Hand& hand);
  static void drop(Hand& hand);
  /// Another member. None: invalid, of rank -1.
  sinew::WorkerInfo any_other(Hand& hand) const;
  void check(const std::string& what, std::int64_t got, std::int64_t expected);

  const sinew::Worker worker_;
  const std::chrono::milliseconds pause_;
  Tally& tally_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::int64_t> numbers_{0};
  std::vector<std::thread> threads_;
};

/// Calls each other member at once. Empty if all answers are right, otherwise what is not.
std::string call_each(const sinew::Worker& worker);

}  // namespace churn
