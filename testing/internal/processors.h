#pragma once

namespace sinew::internal {

/// Runs the calling thread on each processor that it may use, one after the other, and gives it
/// back its choice of them. Then each of them has woken what its timers were due to wake before: a
/// processor of a virtual machine may be stopped for a while, and a thread that a timer there
/// should have woken looks asleep. Takes a turn of each processor: microseconds on those that are
/// free.
void visit_processors();

}  // namespace sinew::internal
