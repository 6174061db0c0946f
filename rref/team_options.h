#pragma once

#include <functional>
#include <string>
#include <utility>

#include "sinew/rpc/retry_policy.h"
#include "sinew/rref/team_event.h"

namespace sinew {

/// Which objects are a Team, and what is done about those that are lost.
struct TeamOptions {
  // Implicit, so that a pattern alone will do.
  TeamOptions(std::string pattern) : members(std::move(pattern)) {}  // NOLINT
  TeamOptions(const char* pattern) : members(pattern) {}             // NOLINT

  /// A pattern of workers' names, as in allow(): the team makes an object at each. Or such a
  /// pattern, a slash, and the name under which each of them has published its object:
  /// "trainer*/replay".
  std::string members;
  /// The worker that has the team may be in it. Otherwise "*" is all others.
  bool includes_self = false;
  /// Workers that join later belong to the team as well, also those that come back.
  bool takes_newcomers = true;
  /// How often it is tried to make one member's object, or to find it, and with which pauses. What
  /// `retry_at` says counts for nothing.
  RetryPolicy making;
  /// Is told of members, one event at a time and in order, on the worker's executor. It may block
  /// and use the team, but not end it.
  std::function<void(const TeamEvent& event)> on_event;
};

}  // namespace sinew
