#pragma once

#include <cstdint>

#include "ATen/core/Generator.h"
#include "shared/transitions.h"

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace actor_learner {

/// The newest transitions, up to a capacity. Not thread-safe.
class ReplayBuffer {
 public:
  /// Throws std::invalid_argument unless `capacity` is at least 1. Takes all its memory at once.
  explicit ReplayBuffer(std::int64_t capacity);

  std::int64_t capacity() const { return capacity_; }
  /// How many there are.
  std::int64_t size() const { return size_; }

  /// Those that do not fit push out the oldest ones.
  void add(const Transitions& transitions);
  /// Draws `count` of those that there are, each as likely as any other, also again. Throws
  /// std::logic_error when there are none.
  Transitions sample(std::int64_t count, at::Generator& random) const;

  void save(torch::serialize::OutputArchive& archive) const;
  /// Of a buffer of any capacity; the newest ones stay. Throws when it is none.
  void load(torch::serialize::InputArchive& archive);

 private:
  /// In the order in which they came.
  Transitions in_order() const;

  const std::int64_t capacity_;
  /// `capacity_` rows.
  Transitions rows_;
  /// The row that is written next.
  std::int64_t next_ = 0;
  std::int64_t size_ = 0;
};

/// Throws std::invalid_argument, with what is wrong, unless the tensors are what Transitions says,
/// finite, and as many.
void check(const Transitions& transitions);

}  // namespace actor_learner
