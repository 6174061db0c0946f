#include "sinew/tests/rref/support/explorer_table.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "sinew/tests/rref/support/ledger_inspector.h"

namespace sinew::internal::ledger {

namespace {

std::uint64_t listing(const RRefId& rref, const ForkId& fork, int holder) {
  return absl::HashOf(rref, fork, holder);
}

/// What the invariants between two workers read.
void fill_in(Node& node, int workers) {
  const Ledger& ledger = node.state.ledger;
  node.claims.resize(static_cast<std::size_t>(workers));
  for (int other = 0; other < workers; ++other) {
    if (ledger.is_lost(worker_info(other))) node.lost |= 1u << other;
  }
  for (const auto& held : LedgerInspector::held_forks(ledger)) {
    if (held.failed || held.state != UserState::kListed) continue;
    node.claims[static_cast<std::size_t>(held.owner.rank)].push_back(
        listing(held.rref, held.fork, ledger.self().rank));
  }
  for (const auto& listed : LedgerInspector::listed_forks(ledger)) {
    node.listed.push_back(listing(listed.rref, listed.fork, listed.holder.rank));
  }
  for (const Handle& handle : node.state.handles) {
    if (handle.status == Handle::Status::kUsable && handle.role == Role::kOwner &&
        !LedgerInspector::owns(ledger, handle.rref)) {
      node.lost_own_value = true;
    }
  }
}

}  // namespace

ReactionTable::ReactionTable(const Scenario& scenario, Reduction reduction)
    : model_(scenario), reduction_(reduction) {
  for (std::size_t slot = 0; slot < scenario.slots.size(); ++slot) {
    Packet step;
    step.kind = Packet::Kind::kStep;
    step.from = scenario.slots[slot].worker;
    step.to = step.from;
    step.slot = static_cast<int>(slot);
    steps_.push_back(&letter(std::move(step)));
  }
}

const Node& ReactionTable::node(WorkerState state) {
  auto [entry, inserted] = nodes_.try_emplace(state.text([](int) { return true; }));
  if (inserted) {
    entry->second = std::make_unique<Node>(std::move(state));
    entry->second->id = static_cast<std::uint32_t>(nodes_.size());
    fill_in(*entry->second, model_.scenario().workers);
  }
  return *entry->second;
}

const Letter& ReactionTable::letter(Packet packet) {
  auto [entry, inserted] = letters_.try_emplace(packet.text());
  if (inserted) {
    entry->second = std::make_unique<Letter>();
    entry->second->id = static_cast<std::uint32_t>(letters_.size());
    entry->second->packet = std::move(packet);
  }
  return *entry->second;
}

const Effect& ReactionTable::react(const Node& worker, const Letter& letter, const Moment& moment) {
  auto [entry, inserted] =
      effects_.try_emplace(Key{worker.id, letter.id, moment.now.count(), moment.faulty});
  Effect& effect = entry->second;
  if (!inserted) return effect;
  Reaction reaction = model_.react(worker.state, letter.packet, moment);
  effect.next = &node(std::move(reaction.next));
  effect.violation = std::move(reaction.violation);
  for (Packet& packet : reaction.sent) effect.sent.push_back(&this->letter(std::move(packet)));
  std::sort(effect.sent.begin(), effect.sent.end(),
            [](const Letter* a, const Letter* b) { return a->id < b->id; });
  return effect;
}

bool ReactionTable::is_silent(const Node& worker, int slot, const Moment& moment) {
  if (!model_.releases_next(worker.state, slot)) return false;
  const Effect& effect = react(worker, step_of(slot), moment);
  return effect.sent.empty() && effect.violation.empty() &&
         effect.next->state.destroyed.size() == worker.state.destroyed.size();
}

std::vector<int> ReactionTable::silent_slots(const Node& worker, const Letter& before,
                                             const Moment& moment) {
  std::vector<int> slots;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const int slot = static_cast<int>(i);
    if (&before != steps_[i] && is_silent(worker, slot, moment)) slots.push_back(slot);
  }
  return slots;
}

/// `first`, then one step of each slot.
Effect ReactionTable::after_all(Effect first, const std::vector<int>& slots, const Moment& moment) {
  for (const int slot : slots) {
    const Effect& step = react(*first.next, step_of(slot), moment);
    first.next = step.next;
    first.sent.insert(first.sent.end(), step.sent.begin(), step.sent.end());
  }
  std::sort(first.sent.begin(), first.sent.end(),
            [](const Letter* a, const Letter* b) { return a->id < b->id; });
  return first;
}

const Node* ReactionTable::after_silence(const Node& worker, const std::vector<int>& slots,
                                         const Moment& moment) {
  const Node* after = &worker;
  for (const int slot : slots) {
    if (!is_silent(*after, slot, moment)) return nullptr;
    after = react(*after, step_of(slot), moment).next;
  }
  return after;
}

bool ReactionTable::is_silent_step(const Node& worker, const Letter& letter, const Moment& moment) {
  return letter.packet.kind == Packet::Kind::kStep && is_silent(worker, letter.packet.slot, moment);
}

const std::vector<Effect>& ReactionTable::react_all_ways(const Node& worker, const Letter& letter,
                                                         const Moment& moment) {
  auto [entry, inserted] =
      ways_.try_emplace(Key{worker.id, letter.id, moment.now.count(), moment.faulty});
  std::vector<Effect>& ways = entry->second;
  if (!inserted) return ways;
  const Effect plain = react(worker, letter, moment);
  if (reduction_ == Reduction::kNone) {
    ways.push_back(plain);
    return ways;
  }
  const bool put_off = is_silent_step(worker, letter, moment);
  if (!put_off) ways.push_back(plain);
  const std::vector<int> silent = silent_slots(worker, letter, moment);
  for (std::uint32_t subset = 1; subset < (1u << silent.size()); ++subset) {
    std::vector<int> slots;
    for (std::size_t i = 0; i < silent.size(); ++i) {
      if ((subset >> i & 1) != 0) slots.push_back(silent[i]);
    }
    const Node* before = after_silence(worker, slots, moment);
    if (before == nullptr) continue;
    const Effect after = react(*before, letter, moment);
    const bool needed = put_off ? !is_silent_step(*before, letter, moment)
                                : !after.same_as(after_all(plain, slots, moment));
    const auto same = [&after](const Effect& way) { return way.same_as(after); };
    if (needed && std::none_of(ways.begin(), ways.end(), same)) ways.push_back(after);
  }
  return ways;
}

}  // namespace sinew::internal::ledger
