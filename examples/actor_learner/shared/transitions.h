#pragma once

#include <cstdint>

#include "ATen/core/Tensor.h"

namespace actor_learner {

inline constexpr std::int64_t kObservationSize = 3;
inline constexpr std::int64_t kActionSize = 1;

/// Steps that were played, a row for each; all of them float.
struct Transitions {
  /// {steps, kObservationSize}
  at::Tensor observations;
  /// {steps, kActionSize}: -1 to 1, the whole range of the motor.
  at::Tensor actions;
  /// {steps}
  at::Tensor rewards;
  /// {steps, kObservationSize}
  at::Tensor next_observations;
  /// {steps}: 1 where the task itself has ended, so that nothing follows; not where time was over.
  at::Tensor terminals;

  std::int64_t steps() const { return rewards.size(0); }
};

}  // namespace actor_learner
