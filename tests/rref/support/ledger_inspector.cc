#include "sinew/tests/rref/support/ledger_inspector.h"

#include <cstring>
#include <optional>
#include <type_traits>
#include <variant>

namespace sinew::internal::ledger {

void put(std::string& out, std::uint64_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put(std::string& out, const std::string& text) {
  put(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

namespace {

void put_token(std::string& out, const Token& token) {
  out.append(reinterpret_cast<const char*>(token.data()), token.size());
}

void put_time(std::string& out, Time time) { put(out, static_cast<std::uint64_t>(time.count())); }

void put_time(std::string& out, const std::optional<Time>& time) {
  put(out, static_cast<std::uint64_t>(time.has_value()));
  if (time.has_value()) put_time(out, *time);
}

template <class Enum>
void put_enum(std::string& out, Enum value) {
  out.push_back(static_cast<char>(value));
}

// After the last element of a list; no element begins like this.
void put_end(std::string& out) { put(out, std::uint64_t{0}); }

void put_status(std::string& out, const absl::Status& status) {
  // The code is what later behaviour depends on; texts may differ by who came first.
  out.push_back(static_cast<char>(status.code()));
}

struct PutMessage {
  std::string& out;
  void operator()(const Claim& m) const {
    put(out, m.rref);
    put(out, m.fork);
  }
  void operator()(const AddFork& m) const {
    put(out, m.rref);
    put(out, m.parent);
    put(out, m.child);
    put_token(out, m.token);
  }
  void operator()(const ForkAdded& m) const {
    put(out, m.rref);
    put(out, m.child);
  }
  void operator()(const ForkRefused& m) const {
    put(out, m.rref);
    put(out, m.child);
    put_status(out, m.reason);
  }
  void operator()(const ChildDone& m) const { put(out, m.child); }
  void operator()(const Delete& m) const {
    put(out, m.rref);
    put(out, m.fork);
    put_time(out, m.may_arrive_for);
  }
  void operator()(const AskClaim& m) const {
    put(out, m.rref);
    put(out, m.fork);
    put_time(out, m.may_arrive_for);
  }
  void operator()(const AskChild& m) const {
    put(out, m.child);
    put_time(out, m.may_arrive_for);
  }
};

}  // namespace

void put(std::string& out, const LedgerMessage& message) {
  out.push_back(static_cast<char>(message.index()));
  std::visit(PutMessage{out}, message);
}

void put(std::string& out, const ForkRecord& record) {
  put(out, record.owner.incarnation.value);
  put(out, record.rref);
  put(out, record.parent);
  put(out, record.fork);
  put_token(out, record.token);
}

std::string LedgerInspector::fingerprint(const Ledger& ledger) {
  return fingerprint(ledger, [](std::uint64_t) { return true; });
}

std::string LedgerInspector::fingerprint(const Ledger& ledger, const SerialFilter& seen) {
  std::string out;
  put(out, ledger.core_.last_serial);
  std::uint64_t lost = 0;  // a set in no order; incarnations of tests are small numbers
  for (Incarnation incarnation : ledger.core_.lost)
    lost |= std::uint64_t{1} << (incarnation.value % 64);
  put(out, lost);
  put_tombstones(out, ledger.core_.refused, seen);
  put_owner(out, ledger.owner_, seen);
  put_user(out, ledger.user_, seen);
  return out;
}

void LedgerInspector::put_tombstones(std::string& out, const TombstoneSet& set,
                                     const SerialFilter& seen) {
  for (const auto& [key, entry] : set.entries_) {
    if (!seen(key.serial)) continue;
    put(out, key);
    put_time(out, entry.until);
  }
  put_end(out);
}

void LedgerInspector::put_owner(std::string& out, const OwnerTable& owner,
                                const SerialFilter& seen) {
  for (const auto& [rref, entry] : owner.entries_) {
    if (!seen(rref.serial)) continue;
    put(out, rref);
    put_enum(out, entry.state);
    put(out, static_cast<std::uint64_t>(entry.handles));
    put(out, static_cast<std::uint64_t>(entry.forks.size()));
  }
  put_end(out);
  for (const auto& [key, fork] : owner.forks_) {
    if (!seen(key.serial)) continue;
    put(out, key);
    put(out, fork.rref);
    put(out, fork.secret);
    put(out, fork.holder.incarnation.value);
    put_enum(out, fork.state);
    put_time(out, fork.deadline);
  }
  put_end(out);
  for (const auto& [key, at] : owner.overdue_.by_key()) {
    if (seen(key.serial)) put(out, key);
  }
  put_end(out);
  put_tombstones(out, owner.tombstones_, seen);
  for (const auto& [key, request] : owner.parked_) {
    if (!seen(key.child.serial)) continue;
    put(out, request.rref);
    put_enum(out, request.kind);
    put(out, request.parent);
    put(out, request.child);
    put(out, request.from.incarnation.value);
    put_time(out, request.expires);
  }
  put_end(out);
}

void LedgerInspector::put_user(std::string& out, const UserTable& user, const SerialFilter& seen) {
  for (const auto& [key, held] : user.users_) {
    if (!seen(key.serial)) continue;
    put(out, held.fork);
    put(out, held.rref);
    put(out, held.owner.incarnation.value);
    put(out, held.giver.has_value() ? held.giver->incarnation.value : 0);
    put_enum(out, held.state);
    put_status(out, held.error);
    put(out, static_cast<std::uint64_t>(held.handles));
    put(out, static_cast<std::uint64_t>(held.children));
    put_time(out, held.may_arrive_until);
  }
  put_end(out);
  for (const auto& [key, child] : user.children_) {
    if (!seen(key.serial)) continue;
    put(out, key);
    put(out, child.parent);
    put(out, child.target.incarnation.value);
    put_time(out, child.deadline);
    put_enum(out, child.asked);
  }
  put_end(out);
}

std::vector<LedgerInspector::HeldFork> LedgerInspector::held_forks(const Ledger& ledger) {
  std::vector<HeldFork> held;
  for (const auto& [key, user] : ledger.user_.users_) {
    held.push_back(HeldFork{user.rref, user.fork, user.owner, user.state, !user.error.ok()});
  }
  return held;
}

std::vector<LedgerInspector::ListedFork> LedgerInspector::listed_forks(const Ledger& owner) {
  std::vector<ListedFork> listed;
  for (const auto& [key, fork] : owner.owner_.forks_) {
    if (!owner.owner_.entries_.contains(fork.rref)) continue;
    listed.push_back(
        ListedFork{fork.rref, ForkId{key.creator, key.serial, fork.secret}, fork.holder});
  }
  return listed;
}

bool LedgerInspector::lists(const Ledger& owner, const RRefId& rref, const ForkId& fork,
                            const WorkerInfo& holder) {
  auto found = owner.owner_.forks_.find(public_part(fork));
  return found != owner.owner_.forks_.end() && found->second.rref == rref &&
         found->second.secret == fork.secret && found->second.holder == holder &&
         owner.owner_.entries_.contains(rref);
}

bool LedgerInspector::refuses(const Ledger& ledger, const ForkId& fork) {
  return ledger.core_.refused.contains(fork);
}

bool LedgerInspector::awaits_receiver(const Ledger& giver, const ForkId& fork) {
  auto unclaimed = giver.owner_.forks_.find(public_part(fork));
  if (unclaimed != giver.owner_.forks_.end()) {
    return unclaimed->second.state != ForkState::kListed;
  }
  return giver.user_.children_.contains(public_part(fork));
}

bool LedgerInspector::holds(const Ledger& user, const ForkId& fork) {
  return user.user_.users_.contains(public_part(fork));
}

bool LedgerInspector::unconfirmed(const Ledger& user, const ForkId& fork) {
  auto found = user.user_.users_.find(public_part(fork));
  return found != user.user_.users_.end() && found->second.state == UserState::kUnconfirmed;
}

void LedgerInspector::set_last_serial(Ledger& ledger, std::uint64_t serial) {
  ledger.core_.last_serial = serial;
}

bool LedgerInspector::creating(const Ledger& user, const ForkId& fork) {
  auto found = user.user_.users_.find(public_part(fork));
  return found != user.user_.users_.end() && found->second.state == UserState::kCreating;
}

bool LedgerInspector::counters_are_right(const Ledger& ledger) {
  std::size_t unclaimed = 0;
  for (const auto& [key, fork] : ledger.owner_.forks_)
    unclaimed += fork.state != ForkState::kListed;
  std::size_t users = 0;
  std::size_t pending = 0;
  for (const auto& [key, user] : ledger.user_.users_) {
    if (user.state == UserState::kGone && user.handles > 0) continue;
    ++users;
    pending += user.state == UserState::kCreating || user.state == UserState::kUnconfirmed;
  }
  const LedgerCounters kept = ledger.counters();
  return kept.unclaimed_forks == unclaimed && kept.users == users && kept.pending_users == pending;
}

std::size_t LedgerInspector::walked(const Ledger& ledger) {
  return ledger.owner_.entries_.walked() + ledger.owner_.forks_.walked() +
         ledger.owner_.parked_.walked() + ledger.user_.users_.walked() +
         ledger.user_.children_.walked();
}

bool LedgerInspector::owns(const Ledger& ledger, const RRefId& rref) {
  return ledger.owner_.entries_.contains(rref);
}

Token test_token(const TokenInput& input) {
  std::uint64_t mixed = 0x9e3779b97f4a7c15u;
  for (std::uint64_t part :
       {input.parent_secret, input.rref.creator.value, input.rref.serial, input.rref.secret,
        input.parent.creator.value, input.parent.serial, input.child.creator.value,
        input.child.serial, input.receiver.incarnation.value}) {
    mixed = (mixed ^ part) * 0xff51afd7ed558ccdu;
    mixed ^= mixed >> 32;
  }
  Token token{};
  std::memcpy(token.data(), &mixed, sizeof mixed);
  return token;
}

}  // namespace sinew::internal::ledger
