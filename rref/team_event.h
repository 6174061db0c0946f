#pragma once

#include <ostream>
#include <string>

#include "sinew/rpc/base/ids.h"

namespace sinew {

/// What has become of a member of a Team. Of each worker they come in this order: kJoined, then
/// kReady, or kGaveUp, or neither; at last kLost.
struct TeamEvent {
  enum class Kind {
    /// A worker whose name matches; also one that comes back. Its object is being made, or found.
    kJoined,
    /// The object is there: calls of the team go to it from now on.
    kReady,
    /// The worker is lost, or has left.
    kLost,
    /// Its object could not be made, or found, so often that it is not tried again until the worker
    /// comes back.
    kGaveUp,
  };

  Kind kind = Kind::kJoined;
  WorkerInfo worker;
  /// For people: of kLost and kGaveUp, why.
  std::string reason;
};

/// "joined", "ready", "lost", "gave up"
std::ostream& operator<<(std::ostream& out, TeamEvent::Kind kind);

}  // namespace sinew
