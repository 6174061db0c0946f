#pragma once

#include <memory>

#include "sinew/rpc/calls/call_server.h"
#include "sinew/testing/internal/fault_table.h"
#include "sinew/testing/internal/step_queue.h"

namespace sinew::internal {

/// Comes between calls that have arrived and what takes their replies: the faults of `table` happen
/// here. Messages between workers wait in `steps` before, unless that is null.
WrapReplySink make_faulty_sinks(std::shared_ptr<FaultTable> table,
                                std::shared_ptr<StepQueue> steps);

}  // namespace sinew::internal
