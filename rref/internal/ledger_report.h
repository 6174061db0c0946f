#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sinew/rpc/base/ids.h"
#include "sinew/rref/internal/ledger_messages.h"

namespace sinew::internal::ledger {

enum class Role { kOwner, kUser };

/// One entry of a ledger, for leak reports (R8) and for people who look for one.
struct LiveReference {
  Role role = Role::kOwner;
  RRefId rref;
  /// The user's fork; empty in the owner's role.
  ForkId fork;
  /// The owner in the user's role; the holders in the owner's role, in no particular order.
  std::vector<WorkerInfo> peers;
  /// Such as `creating`, `unconfirmed`, `listed`, `pending`, `ready`, `failed`.
  std::string state;
  std::size_t local_handles = 0;
  /// Forks passed on whose receivers have not settled yet.
  std::size_t pending_children = 0;
  Description description;
};

/// `reference 00000000000000a1.3 of type 'app::Agent' made at agent.cc:12: owned here, ready, 0
/// local handles, held by worker 'observer'`: one line without its end.
std::string to_text(const LiveReference& reference);

struct LedgerCounters {
  std::size_t owner_entries = 0;
  std::size_t forks = 0;            // in the owner's table
  std::size_t unclaimed_forks = 0;  // of these, not heard of yet
  std::size_t forks_of_lost = 0;    // of forks, kept until their holders have fenced themselves
  std::size_t users = 0;
  std::size_t pending_users = 0;  // of these, creating or unconfirmed
  std::size_t pending_children = 0;
  std::size_t parked = 0;      // requests that wait for a creation
  std::size_t tombstones = 0;  // go away by time alone

  /// Nothing is held and nothing is awaited; tombstones do not count.
  bool quiescent() const { return owner_entries + forks + users + pending_children + parked == 0; }
};

}  // namespace sinew::internal::ledger
