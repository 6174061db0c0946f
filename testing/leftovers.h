#pragma once

#include <string>
#include <vector>

#include "sinew/rpc/worker.h"

namespace sinew::testing {

/// What a worker still has of calls, references, names and autograd contexts, by its counters: one
/// line each, as "learner: rref.owned is 2". Nothing once a test has dropped all that it had and
/// the messages about it have been handled; nothing in any case after a worker's end, also of what
/// the program still holds. Thread-safe.
std::vector<std::string> leftovers(const Worker& worker);

}  // namespace sinew::testing
