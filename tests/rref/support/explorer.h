#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sinew::internal::ledger {

/// One reference handle in a scenario: made at a root, or given by the holder of another slot.
/// Each holder gives its reference to all children, in order, and then drops its handle; it may
/// also drop the handle while that waits for its confirmation.
struct Slot {
  int worker = 0;
  int parent = -1;  // index of the giving slot; -1: a root
  enum class Root { kCreate, kCreateFails, kOwn } root = Root::kOwn;
  int owner = 0;  // of the reference, in roots
};

struct Scenario {
  int workers = 0;
  std::vector<Slot> slots;
};

std::string to_text(const Scenario& scenario);

/// How often each fault may strike on one path.
struct Faults {
  int drops = 0;  // a call, its reply or its record is lost, or given up while it is on its way
  int duplicates = 0;  // any message arrives twice
  int crashes = 0;     // a worker ends; the others hear of it each in their own time
  int advances = 0;    // deadlines, leases and tombstones pass at any moment
};

struct Exploration {
  std::size_t states = 0;       // different ones
  std::size_t transitions = 0;  // followed
  std::size_t endings = 0;      // states in which nothing is left to do
  /// Empty when every invariant held; else which one broke, and the events that led there.
  std::string violation;
};

/// Visits every state that can be reached by any order of deliveries, program steps and faults, and
/// judges the invariants of docs/protocols.md in each. Stops at the first violation.
Exploration explore(const Scenario& scenario, const Faults& faults);

/// All scenarios, up to renaming of workers, with `forks` forks in trees of the given numbers of
/// forks, on `workers` workers. `trees` {3} is one reference with three forks, {2, 1} two
/// references.
std::vector<Scenario> all_scenarios(const std::vector<int>& trees, int workers);

}  // namespace sinew::internal::ledger
