#pragma once

#include <cstdint>
#include <vector>

#include "shared/policy.h"

namespace actor_learner {

/// The returns of so many episodes of `policy` without chance, from starts that `seed` decides
/// about.
std::vector<double> evaluate(Policy& policy, std::int64_t episodes, std::uint64_t seed);

}  // namespace actor_learner
