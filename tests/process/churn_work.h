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

#include "sinew/tests/process/churn_life.h"
#include "sinew/tests/process/churn_methods.h"

namespace churn {

/// Calls others at random until it is stopped, makes references at them, uses them, has third ones
/// use and keep them, and gives them up. Checks all that comes back.
class Work final : public Activity {
 public:
  /// `pause` is the mean time between two actions of one of its threads.
  Work(sinew::Worker worker, std::chrono::milliseconds pause, Tally& tally);
  /// Stops; the references go.
  ~Work() override;
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
