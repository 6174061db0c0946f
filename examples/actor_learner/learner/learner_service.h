#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "learner/replay_buffer.h"
#include "shared/learner.h"

namespace actor_learner {

/// Stands between the actors, which call it from other processes, and the training, which runs in a
/// thread of its own: holds what was played. Thread-safe.
class LearnerService final : public Learner {
 public:
  explicit LearnerService(std::int64_t capacity) : replay_(capacity) {}

  Receipt push(const Played& played) override;

  /// Waits until so many transitions have come in all; false when `timeout` is over.
  bool await_transitions(std::int64_t count, std::chrono::nanoseconds timeout) const;
  /// Of all that came, also before a restart, and not only those that the buffer still has.
  std::int64_t transitions() const;
  Transitions sample(std::int64_t count, at::Generator& random) const;
  /// Of the episodes that ended since the last call.
  std::vector<double> take_returns();

  /// Tells actors from now on that the training is over.
  void finish();

  /// The buffer and the number of transitions.
  void save(torch::serialize::OutputArchive& archive) const;
  void load(torch::serialize::InputArchive& archive);

 private:
  mutable std::mutex mutex_;
  /// That there are more transitions.
  mutable std::condition_variable more_;
  ReplayBuffer replay_;
  std::int64_t transitions_ = 0;
  std::vector<double> returns_;
  bool finished_ = false;
};

}  // namespace actor_learner
