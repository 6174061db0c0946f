#pragma once

namespace sinew::internal {

/// Runs the calling thread on each processor that it may use, one after the other, and gives it
/// back its choice of them. Then each of them has let go what its timers were due to wake before:
/// one of a virtual machine may stand still for a while, and whoever a timer there was to wake
/// meanwhile looks asleep. Takes a turn of each processor: microseconds on those that are free.
void visit_processors();

}  // namespace sinew::internal
