#pragma once

#include "sinew/tests/rref/support/simulation_cluster.h"

namespace sinew::internal::ledger {

/// A worker tries a hostile message, knowing everything about somebody else's fork, secret
/// included; it must be refused and change nothing (R4). Does nothing if there is no fork to go
/// for.
void forge(SimulatedCluster& cluster, int attacker);

}  // namespace sinew::internal::ledger
