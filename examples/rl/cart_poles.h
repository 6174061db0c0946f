#pragma once

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "cart_pole.h"
#include "earnings.h"

namespace rl {

/// Several CartPoles that are asked for and pushed together. Each plays one episode; one whose
/// episode has ended is left out until all begin again. Not thread-safe.
class CartPoles {
 public:
  /// The environments with the numbers `first` to `first + count - 1` of an observer. Environment i
  /// has the seed `seed + i * kSeedStep`.
  CartPoles(std::int32_t first, std::int32_t count, std::uint64_t seed);

  /// Begins an episode of `max_steps` steps at most, at least 1, in each of them.
  void reset(std::int64_t max_steps);
  /// All episodes have ended.
  bool is_over() const { return playing_.empty(); }
  /// Where those stand that still play: float, {n, 4}. A new tensor each time.
  at::Tensor states() const;
  /// Pushes them. `actions` is int64, {n}, in the order of states(). Throws std::invalid_argument
  /// for anything else.
  Earnings step(const at::Tensor& actions);

 private:
  const std::int32_t first_;
  std::vector<CartPole> environments_;
  std::int64_t steps_left_ = 0;
  // Those that still play, as places in `environments_`, and their states.
  std::vector<std::int32_t> playing_;
  std::vector<State> states_;
};

}  // namespace rl
