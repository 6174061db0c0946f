#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "sinew/groups/store.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// Whether what is waited for can still come: asked now and then, an error ends the wait.
using Health = std::function<absl::Status()>;

/// One rank's part in the start of a group.
struct AssemblyRequest {
  Store store;
  std::string group;
  int rank = 0;
  int size = 1;
  /// What all ranks must say alike: backends, members. For people too.
  std::string terms;
  Clock::TimePoint deadline;
  /// Why ranks may not come, behind the text that names those.
  std::string hint;
  /// At rank 0: called when all are there, before they are told. May be null.
  std::function<void()> on_all_there;
  /// Of the other ranks. May be null.
  Health health;
  /// The rank whose process serves the store and takes it along when it ends. It stays for two
  /// seconds at most, until the others have read why there is no group. Unset: none of them.
  std::optional<int> store_server;
};

/// Meets the other ranks at a store, where the same group may have met before, in vain or with
/// success: each time all meet is a generation of its own. Returns the store of this one's keys.
///
/// A rank takes its seat in the first generation that is not abandoned and where its seat is free.
/// Rank 0 opens it once all seats are taken and all terms are alike; a rank that waits too long
/// abandons it, for all. One key decides which of the two it was.
///
/// kDeadlineExceeded names the ranks that have not arrived; kUnavailable, a rank that gave up, and
/// why (its own error is that of its `health`); kInvalidArgument, at all ranks, those that say
/// other terms; errors of the store.
absl::StatusOr<Store> assemble(const AssemblyRequest& request);

/// The second part, at the store that assemble() has returned: each rank connects itself with the
/// others by `connect`, which blocks and throws, and asks its `health` now and then while it waits
/// for another rank. OK once all are connected. A rank that cannot says why, and all have failed:
/// kUnavailable with that rank and its reason at the others, its own error there;
/// kDeadlineExceeded, at all, names a rank that has not connected. Errors of the store.
absl::Status connect_together(const AssemblyRequest& request, const Store& store,
                              const std::function<void(const Health& health)>& connect);

}  // namespace sinew::internal
