#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sinew/rref/internal/ledger.h"

namespace sinew::internal::ledger {

/// Of which ids, by their serials, something is to be seen.
using SerialFilter = std::function<bool(std::uint64_t serial)>;

/// Looks into a ledger, for tests that compare or judge whole states.
struct LedgerInspector {
  /// Equal texts mean equal states: two ledgers with one text behave alike for ever.
  static std::string fingerprint(const Ledger& ledger);
  /// The same of a part of the ledger.
  static std::string fingerprint(const Ledger& ledger, const SerialFilter& seen);

  struct HeldFork {
    RRefId rref;
    ForkId fork;
    WorkerInfo owner;
    UserState state;
    bool failed;
  };
  static std::vector<HeldFork> held_forks(const Ledger& ledger);

  struct ListedFork {
    RRefId rref;
    ForkId fork;
    WorkerInfo holder;
  };
  static std::vector<ListedFork> listed_forks(const Ledger& owner);

  /// Whether the owner's table lists exactly this fork for this holder.
  static bool lists(const Ledger& owner, const RRefId& rref, const ForkId& fork,
                    const WorkerInfo& holder);
  /// Whether the ledger promised never to accept a record of this fork.
  static bool refuses(const Ledger& ledger, const ForkId& fork);
  /// Whether a fork that was given away here is neither claimed nor settled yet.
  static bool awaits_receiver(const Ledger& giver, const ForkId& fork);
  /// Whether a user's fork is known here, whether it waits for its owner, and whether its creating
  /// call is still out.
  static bool holds(const Ledger& user, const ForkId& fork);
  static bool unconfirmed(const Ledger& user, const ForkId& fork);
  static bool creating(const Ledger& user, const ForkId& fork);
  /// The next id is drawn after this one.
  static void set_last_serial(Ledger& ledger, std::uint64_t serial);
  static bool owns(const Ledger& ledger, const RRefId& rref);
  /// Whether counters(), which are kept up to date, say what a look at every entry says.
  static bool counters_are_right(const Ledger& ledger);
  /// How many entries of its tables the ledger has walked over so far; see ledger_table.h.
  static std::size_t walked(const Ledger& ledger);

 private:
  static void put_tombstones(std::string& out, const TombstoneSet& set, const SerialFilter& seen);
  static void put_owner(std::string& out, const OwnerTable& owner, const SerialFilter& seen);
  static void put_user(std::string& out, const UserTable& user, const SerialFilter& seen);
};

/// Appends fixed-width or length-prefixed encodings, so that no two sequences of values look the
/// same.
void put(std::string& out, std::uint64_t value);
void put(std::string& out, const std::string& text);
void put(std::string& out, const LedgerMessage& message);
void put(std::string& out, const ForkRecord& record);
template <class Tag>
void put(std::string& out, const GlobalId<Tag>& id) {
  put(out, id.creator.value);
  put(out, id.serial);
  put(out, id.secret);
}

/// A cheap stand-in for the HMAC: as good for telling inputs apart, worthless against an attacker.
Token test_token(const TokenInput& input);

}  // namespace sinew::internal::ledger
