#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rref/internal/ledger_messages.h"
#include "sinew/rref/internal/ledger_token.h"
#include "sinew/rref/internal/ledger_tombstones.h"

namespace sinew::internal::ledger {

struct LedgerOptions {
  /// The lease of worker pairs (the same for the whole job).
  std::chrono::nanoseconds lease = std::chrono::seconds(15);
  /// How long a child may wait for the call that creates its reference, when it overtook that call.
  std::chrono::nanoseconds park_for = std::chrono::minutes(1);
  /// Requests of one peer that may wait for a creation that has not arrived yet.
  std::size_t max_parked_per_peer = 4096;
  /// Forks that one peer may have us remember on its word alone.
  std::size_t max_tombstones_per_peer = 65536;
  /// The longest `may_arrive_for` of a peer that counts.
  std::chrono::nanoseconds max_may_arrive_for = std::chrono::minutes(10);
  /// Where secrets come from; must be unguessable outside tests.
  std::function<std::uint64_t()> draw_secret = random_secret;
  TokenFunction make_token = hmac_token;
};

/// What the owner's and the user's side of one ledger share. A value type; not thread-safe.
struct LedgerCore {
  WorkerInfo self;
  LedgerOptions options;
  /// Incarnations that ended, permanently (R7). Eight bytes each; never shrinks.
  absl::flat_hash_set<Incarnation> lost;
  /// Forks that were received here and ended, or that we promised never to accept.
  TombstoneSet refused;
  std::uint64_t last_serial = 0;

  RRefId draw_rref() { return RRefId{self.incarnation, ++last_serial, options.draw_secret()}; }
  ForkId draw_fork() { return ForkId{self.incarnation, ++last_serial, options.draw_secret()}; }

  bool is_lost(const WorkerInfo& worker) const { return lost.contains(worker.incarnation); }

  /// Adds the message unless its receiver is lost.
  void send(Actions& actions, const WorkerInfo& to, LedgerMessage message,
            Description deleted = {}) const {
    if (!is_lost(to)) actions.push_back(Send{to, std::move(message), std::move(deleted)});
  }

  /// For how long a deletion is to be remembered when the peer says that the fork may arrive so
  /// much later.
  Time tombstone_end(Time now, std::chrono::nanoseconds may_arrive_for) const {
    const auto capped =
        std::min(std::max(may_arrive_for, std::chrono::nanoseconds(0)), options.max_may_arrive_for);
    return now + capped + options.lease;
  }
};

}  // namespace sinew::internal::ledger
