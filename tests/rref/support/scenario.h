#pragma once

#include <string>
#include <vector>

namespace sinew::internal::ledger {

/// One reference handle in a scenario: made at a root, or given by the holder of another slot.
/// Each holder gives its reference to all children, in order, and then drops its handle; it may
/// also drop the handle while that waits for its confirmation.
struct Slot {
  int worker = 0;
  int parent = -1;  // index of the giving slot; -1: a root
  enum class Root {
    kCreate,
    kCreateFails,
    kOwn,
    kNever,  // nobody makes it; the slots below keep their numbers
  } root = Root::kOwn;
  int owner = 0;  // of the reference, in roots
};

struct Scenario {
  int workers = 0;
  std::vector<Slot> slots;
};

std::string to_text(const Scenario& scenario);

/// All scenarios, up to renaming of workers, with `forks` forks in trees of the given numbers of
/// forks, on `workers` workers. `trees` {3} is one reference with three forks, {2, 1} two
/// references.
std::vector<Scenario> all_scenarios(const std::vector<int>& trees, int workers);

}  // namespace sinew::internal::ledger
