#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "shared/pendulum.h"

namespace actor_learner {

/// What becomes of a step that finds the queue full.
enum class Overflow {
  /// The oldest one that waits makes room for it.
  kDropOldest,
  /// It waits until there is room.
  kBlock,
};

/// One step that was played.
struct Step {
  Pendulum::Observation observation{};
  /// -1 to 1
  float action = 0;
  float reward = 0;
  Pendulum::Observation next_observation{};
  /// Of the episode, if it ended with this step.
  std::optional<double> episode_return;
};

/// Steps on their way from the thread that plays to the one that pushes them to the learner, so
/// that neither waits for the other. Thread-safe.
class TransitionQueue {
 public:
  /// `capacity` is at least 1.
  TransitionQueue(std::size_t capacity, Overflow overflow)
      : capacity_(capacity), overflow_(overflow) {}

  /// After close() it is lost.
  void push(const Step& step);
  /// Waits until there are `least`, and returns them and whatever else there is, `most` at most and
  /// oldest first. After close(): at once, what is left; nothing in the end.
  std::vector<Step> take(std::size_t least, std::size_t most);
  /// Nothing comes any more, and nobody waits.
  void close();

  /// How many were lost.
  std::int64_t dropped() const;

 private:
  const std::size_t capacity_;
  const Overflow overflow_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Step> steps_;
  std::int64_t dropped_ = 0;
  bool closed_ = false;
};

}  // namespace actor_learner
