#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "sinew/tests/rref/support/explorer_state.h"
#include "sinew/tests/rref/support/explorer_table.h"
#include "sinew/tests/rref/support/scenario.h"

namespace sinew::internal::ledger {

struct Exploration {
  std::size_t states = 0;       // different ones
  std::size_t transitions = 0;  // followed
  std::size_t endings = 0;      // states in which nothing is left to do
  /// Empty when every invariant held; else which one broke, and the events that led there.
  std::string violation;
};

enum class Progress { kGoesOn, kEnded };

/// Called with every state once, and once more with those in which nothing is left to do.
using StateVisitor = std::function<void(const WorldState& state, Progress progress)>;

/// Visits every state that can be reached by any order of deliveries, program steps and faults, and
/// judges the invariants of docs/protocols.md in each. Stops at the first violation.
///
/// With Reduction::kFull, of orders that end alike only one is followed; the sources give the
/// reason for each rule. With an `advances` budget the rules do not hold and nothing is reduced.
Exploration explore(const Scenario& scenario, const Faults& faults,
                    Reduction reduction = Reduction::kFull, const StateVisitor& visitor = {});

}  // namespace sinew::internal::ledger
