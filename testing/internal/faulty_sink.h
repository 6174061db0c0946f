#pragma once

#include <memory>

#include "sinew/rpc/calls/invocation.h"
#include "sinew/testing/internal/fault_table.h"

namespace sinew::internal {

/// Comes between a call that has arrived and `sink`, which takes its reply: the faults of `table`
/// happen here.
std::shared_ptr<ReplySink> make_faulty_sink(std::shared_ptr<FaultTable> table,
                                            WorkerServices& services, const ArrivedCall& call,
                                            std::shared_ptr<ReplySink> sink);

}  // namespace sinew::internal
