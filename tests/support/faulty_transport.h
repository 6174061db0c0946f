#pragma once

#include <memory>

#include "sinew/rpc/transport/transport.h"
#include "sinew/tests/support/fault_plan.h"

namespace sinew::internal {

/// Wraps any transport. With a plan without rules it behaves as `inner` does. Unary calls pass
/// unharmed.
std::unique_ptr<Transport> make_faulty_transport(std::unique_ptr<Transport> inner,
                                                 std::shared_ptr<FaultPlan> plan);

}  // namespace sinew::internal
