#include "sinew/tests/rref/support/explorer_state.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "sinew/tests/rref/support/ledger_inspector.h"

namespace sinew::internal::ledger {

namespace {

bool by_id(const Letter* a, const Letter* b) { return a->id < b->id; }

/// SplitMix64's last steps: every bit of the result depends on every bit of the argument.
std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::string judge_pair(const WorldState& state, int holder, int owner) {
  const Node& from = state.worker(holder);
  const auto& claims = from.claims[static_cast<std::size_t>(owner)];
  if (claims.empty() || !state.in_touch(holder, owner)) return "";
  const auto& listed = state.worker(owner).listed;
  for (const std::uint64_t claim : claims) {
    if (std::find(listed.begin(), listed.end(), claim) == listed.end()) {
      return absl::StrCat("w", holder, " holds a confirmed fork that its owner, w", owner,
                          ", does not list");
    }
  }
  return "";
}

/// A value lives while a message that carries a reference to it may still be accepted.
std::string judge_record(const WorldState& state, const Packet& packet) {
  if (packet.kind != Packet::Kind::kRecord || packet.twin) return "";
  const int owner = packet.record.owner.rank;
  const auto& destroyed = state.worker(owner).state.destroyed;
  if (destroyed.empty() || !state.in_touch(packet.from, packet.to) ||
      !state.in_touch(packet.from, owner) || !state.in_touch(packet.to, owner) ||
      LedgerInspector::refuses(state.worker(packet.to).state.ledger, packet.record.fork) ||
      std::count(destroyed.begin(), destroyed.end(), packet.record.rref) == 0) {
    return "";
  }
  return absl::StrCat("value destroyed while a message carries ", describe(packet.record.rref));
}

}  // namespace

bool WorldState::in_touch(int a, int b) const {
  return alive(a) && alive(b) && (worker(a).lost >> b & 1) == 0 && (worker(b).lost >> a & 1) == 0;
}

const Letter& WorldState::take(std::size_t i) {
  const Letter& letter = *net[i];
  net.erase(net.begin() + static_cast<std::ptrdiff_t>(i));
  return letter;
}

void WorldState::send(const Letter& letter) {
  if (!alive(letter.packet.to)) return;
  net.insert(std::lower_bound(net.begin(), net.end(), &letter, by_id), &letter);
}

void WorldState::apply(int worker, const Effect& effect) {
  workers[static_cast<std::size_t>(worker)] = effect.next;
  for (const Letter* letter : effect.sent) send(*letter);
}

void WorldState::drop_all_to(int worker) {
  net.erase(std::remove_if(net.begin(), net.end(),
                           [worker](const Letter* letter) { return letter->packet.to == worker; }),
            net.end());
}

std::uint64_t WorldState::hash() const {
  std::uint64_t sum = 0x9e3779b97f4a7c15u;
  const auto add = [&sum](std::uint64_t part) { sum = mixed(sum + 0x9e3779b97f4a7c15u + part); };
  for (const Node* worker : workers) add(worker->id);
  for (const Letter* letter : net) add(std::uint64_t{letter->id} << 32);
  add(static_cast<std::uint64_t>(((left.drops * 16 + left.duplicates) * 16 + left.crashes) * 16 +
                                 left.advances));
  add(static_cast<std::uint64_t>(moment.now.count()));
  return sum;
}

std::string judge(const WorldState& state) {
  const int workers = static_cast<int>(state.workers.size());
  for (int a = 0; a < workers; ++a) {
    if (!state.alive(a)) continue;
    if (state.worker(a).lost_own_value)
      return absl::StrCat("w", a, " has a handle of a destroyed value");
    for (int b = 0; b < workers; ++b) {
      std::string broken = judge_pair(state, a, b);
      if (!broken.empty()) return broken;
    }
  }
  for (const Letter* letter : state.net) {
    std::string broken = judge_record(state, letter->packet);
    if (!broken.empty()) return broken;
  }
  return "";
}

bool without_effect(const WorldState& state, const Packet& packet) {
  const Node& to = state.worker(packet.to);
  const Ledger& ledger = to.state.ledger;
  if (packet.is_message() && (to.lost >> packet.from & 1) != 0) return true;
  if (packet.kind == Packet::Kind::kCreateGivenUp || packet.kind == Packet::Kind::kCreateReply) {
    return !LedgerInspector::creating(ledger, packet.fork);
  }
  if (packet.kind == Packet::Kind::kRecordGivenUp) {
    return !LedgerInspector::awaits_receiver(ledger, packet.fork);
  }
  if (!packet.message.has_value()) return false;
  if (const auto* claim = std::get_if<Claim>(&*packet.message)) {
    return !LedgerInspector::awaits_receiver(ledger, claim->fork);
  }
  if (const auto* done = std::get_if<ChildDone>(&*packet.message)) {
    return !LedgerInspector::awaits_receiver(ledger, done->child);
  }
  if (const auto* added = std::get_if<ForkAdded>(&*packet.message)) {
    return !LedgerInspector::unconfirmed(ledger, added->child);
  }
  if (const auto* refused = std::get_if<ForkRefused>(&*packet.message)) {
    return !LedgerInspector::unconfirmed(ledger, refused->child);
  }
  return false;
}

}  // namespace sinew::internal::ledger
