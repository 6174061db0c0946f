#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/object_turns.h"
#include "sinew/rpc/method_rules.h"

namespace sinew::internal {

/// What a call has of the turn at its object: see MethodRules::one_at_a_time(). It has a place
/// among the calls through its reference, from when those that its caller made before have theirs
/// until the object is there; then one among all calls of the object.
struct Invocation::CallTurn {
  CallTurn(OneAtATime how, std::shared_ptr<ObjectTurns> all)
      : gives_up(how == OneAtATime::kGivesUpTurn), turns(std::move(all)) {}

  const bool gives_up;
  const std::shared_ptr<ObjectTurns> turns;
  /// Set before `turn` is.
  TurnTable::Key object;

  Mutex mutex;
  ObjectTurns::Turn reference ABSL_GUARDED_BY(mutex);
  ObjectTurns::Turn turn ABSL_GUARDED_BY(mutex);
  /// With `gives_up`: the parts of the method that run now, and those that wait for the turn: a
  /// coroutine that it awaits may be in another part than itself.
  int running ABSL_GUARDED_BY(mutex) = 0;
  std::vector<std::function<void()>> resuming ABSL_GUARDED_BY(mutex);
  /// The call has its reply.
  bool ended ABSL_GUARDED_BY(mutex) = false;
  /// That of the turn while the call has it; or 0.
  std::uint64_t token ABSL_GUARDED_BY(mutex) = 0;
};

}  // namespace sinew::internal
