#pragma once

#include <vector>

#include "ATen/core/Tensor.h"

namespace sinew::parallel {

/// What becomes of random numbers that a checkpointed part draws.
enum class RandomNumbers {
  /// The second run draws what the first one drew, and who draws later does not notice it.
  kRepeated,
  /// They are not looked at: for parts that draw none, while other threads do.
  kIgnored,
};

/// For checkpoint(): what a part uses in addition to its inputs. A module's own need not be named.
struct CheckpointOptions {
  /// What gets gradients.
  std::vector<at::Tensor> parameters;
  /// What forward changes, or what may change before backward. They are copied in each forward.
  std::vector<at::Tensor> buffers;
  RandomNumbers random = RandomNumbers::kRepeated;
};

}  // namespace sinew::parallel
