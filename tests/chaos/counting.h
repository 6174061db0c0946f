#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "sinew/sinew.h"
#include "sinew/tests/process/churn_life.h"
#include "sinew/tests/process/churn_tally.h"

namespace chaos {

/// Increments counters of others at random, by calls, by calls that are repeated, and by
/// references, writes into their diaries in turn and by streams, and has backward passes through
/// others. What is asked of others goes to the history.
class Counting final : public churn::Activity {
 public:
  /// `pause` is the mean time between two actions of one of its threads.
  Counting(sinew::Worker worker, std::chrono::milliseconds pause, churn::Tally& tally);
  ~Counting() override;

 private:
  static constexpr int kThreads = 2;

  void run(std::mt19937_64 random);
  void run_together();
  /// Of all others at once, which answer late.
  void increment_all();
  /// Of one thread, so that there is an order.
  void note_in_turn(const sinew::WorkerInfo& other);
  void stream_to(const sinew::WorkerInfo& other);
  void act(const sinew::WorkerInfo& other, std::uint64_t choice);
  void by_call(const sinew::Peer& peer);
  void by_reference(const std::string& name);
  void backward(const sinew::Peer& peer);
  /// Has what `work` throws counted.
  template <class Work>
  void tell_errors(const sinew::WorkerInfo& other, const Work& work);
  /// Makes one increment of the counter, and writes what has become of it.
  template <class Call>
  void count(const sinew::WorkerInfo& owner, const Call& call);
  /// Which it is, once it is in the history.
  std::string begin(const std::string& target);
  /// Waits with `wait`, and writes what has become of the increment.
  template <class Wait>
  void finish(const std::string& target, const std::string& id, const Wait& wait);

  const sinew::Worker worker_;
  const std::chrono::milliseconds pause_;
  churn::Tally& tally_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::int64_t> numbers_{0};
  std::vector<std::thread> threads_;
};

}  // namespace chaos
