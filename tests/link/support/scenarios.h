#pragma once

#include <vector>

#include "sinew/tests/link/support/explorer.h"

namespace sinew::internal::link_model {

/// Small worlds of two workers that together show the rules of a link. `level` 0: those that take
/// under a minute together without much optimisation; 1: all.
std::vector<Scenario> scenarios(int level);

}  // namespace sinew::internal::link_model
