#pragma once

namespace sinew {

/// Whether a worker is in its job, as far as it knows.
enum class MembershipState {
  /// It looks for the job, or waits for the other ranks of a fixed world.
  kJoining,
  kMember,
  /// Somebody who was lost says that this worker is not in the job any more, or was just lost and
  /// is asked: it will be known within seconds.
  kSuspected,
  /// The others have taken this worker for lost, and go on without it. All that it shared with them
  /// is gone; only a new worker can join the job again.
  kEvicted,
  /// It has left, was shut down, or never got in.
  kLeft,
};

}  // namespace sinew
