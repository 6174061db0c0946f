#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rref/internal/ledger_messages.h"

namespace sinew::internal::ledger {

/// Forks that ended, remembered for a bounded time so that a late or repeated message cannot bring
/// them back. Keys are public parts of fork ids. A value type; not thread-safe.
class TombstoneSet {
 public:
  /// Remembers `fork` until `until`, or longer where it is already remembered for longer.
  void add(const ForkId& fork, Time until);

  /// The same because a peer alone says so: counted against that peer, and refused (false) from
  /// `limit` on, so that a hostile peer cannot fill the memory.
  bool add_for_peer(const ForkId& fork, Time until, Incarnation peer, std::size_t limit);

  bool contains(const ForkId& fork) const { return entries_.contains(public_part(fork)); }

  /// Forgets what is over at `now`.
  void expire(Time now);

  std::optional<Time> next_expiry() const;
  std::size_t size() const { return entries_.size(); }

 private:
  friend struct LedgerInspector;  // tests only: canonical text of the state

  struct Entry {
    Time until{0};
    Incarnation charged;  // zero: no peer
  };

  void insert(const ForkId& fork, Time until, Incarnation charged);

  absl::btree_map<ForkId, Entry> entries_;
  absl::btree_set<std::pair<Time, ForkId>> by_time_;
  absl::btree_map<Incarnation, std::size_t> charges_;
};

}  // namespace sinew::internal::ledger
