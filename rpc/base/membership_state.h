#pragma once

namespace sinew {

/// Whether a worker is in its job, as far as it knows.
enum class MembershipState {
  /// It looks for the job, or waits for the other ranks of a fixed world.
  kJoining,
  kMember,
  /// The registrar does not answer, so no worker can join or be taken for lost. Calls between
  /// workers that see each other go on.
  kSuspected,
  /// It is off the list of members, and the others go on without it. All that it shared with them
  /// is gone; only a new worker can join the job again.
  kEvicted,
  /// It has left, was shut down, or never got in.
  kLeft,
};

}  // namespace sinew
