#include "sinew/rref/internal/ledger_tombstones.h"

namespace sinew::internal::ledger {

void TombstoneSet::add(const ForkId& fork, Time until) { insert(fork, until, Incarnation{}); }

bool TombstoneSet::add_for_peer(const ForkId& fork, Time until, Incarnation peer,
                                std::size_t limit) {
  if (!contains(fork)) {
    auto charge = charges_.find(peer);
    if (charge != charges_.end() && charge->second >= limit) return false;
  }
  insert(fork, until, peer);
  return true;
}

void TombstoneSet::insert(const ForkId& fork, Time until, Incarnation charged) {
  const ForkId key = public_part(fork);
  auto [entry, inserted] = entries_.try_emplace(key, Entry{until, charged});
  if (inserted) {
    if (charged.value != 0) ++charges_[charged];
    by_time_.emplace(until, key);
  } else if (until > entry->second.until) {
    by_time_.erase({entry->second.until, key});
    by_time_.emplace(until, key);
    entry->second.until = until;
  }
}

void TombstoneSet::expire(Time now) {
  while (!by_time_.empty() && by_time_.begin()->first <= now) {
    auto entry = entries_.find(by_time_.begin()->second);
    if (auto charge = charges_.find(entry->second.charged); charge != charges_.end()) {
      if (--charge->second == 0) charges_.erase(charge);
    }
    entries_.erase(entry);
    by_time_.erase(by_time_.begin());
  }
}

std::optional<Time> TombstoneSet::next_expiry() const {
  if (by_time_.empty()) return std::nullopt;
  return by_time_.begin()->first;
}

}  // namespace sinew::internal::ledger
