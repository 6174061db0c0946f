#pragma once

#include <vector>

#include "sinew/sinew.h"

namespace sinew::testing {

/// Has the `others` take `worker` for lost, as if it had been stopped for a lease, and waits until
/// it knows that it is out of the job. False if it never did. They are the larger side.
bool evict(const Worker& worker, const std::vector<Worker>& others);

}  // namespace sinew::testing
