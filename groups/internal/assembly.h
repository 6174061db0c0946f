#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "sinew/groups/store.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// One rank's part in the start of a group.
struct AssemblyRequest {
  Store store;
  std::string group;
  int rank = 0;
  int size = 1;
  /// What all ranks must say alike: backends, members. For people too.
  std::string terms;
  Clock::TimePoint deadline;
  /// At rank 0: called when all are there, before they are told. May be null.
  std::function<void()> on_all_there;
  /// Asked now and then while others are waited for: an error ends the start. May be null.
  std::function<absl::Status()> health;
};

/// Meets the other ranks at a store, where the same group may have met before, in vain or with
/// success: each time all meet is a generation of its own. Returns the store of this one's keys.
///
/// A rank takes its seat in the first generation that nobody has abandoned and where its seat is
/// free. Rank 0 opens it once all seats are taken and all terms are alike; who waits too long
/// abandons it, for all. One key decides which of the two it was.
///
/// kDeadlineExceeded names the ranks that have not come; kUnavailable, a rank that gave up, and why
/// (its own error is that of its `health`); kInvalidArgument, at all ranks, those that
/// say other terms; errors of the store.
absl::StatusOr<Store> assemble(const AssemblyRequest& request);

}  // namespace sinew::internal
