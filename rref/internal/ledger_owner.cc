#include "sinew/rref/internal/ledger_owner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rref/internal/ledger_bugs.h"

namespace sinew::internal::ledger {

namespace {

absl::Status unknown_reference(const RRefId& rref) {
  return absl::NotFoundError(
      absl::StrCat(describe(rref), " is not owned here: it was never made or has been destroyed"));
}

}  // namespace

// --- Values and local handles --------------------------------------------------------------------

RRefId OwnerTable::own(LedgerCore& core, ValueState state, Description description) {
  const RRefId rref = core.draw_rref();
  Entry entry;
  entry.state = state;
  entry.handles = 1;
  entry.description = std::move(description);
  entries_.emplace(rref, std::move(entry));
  return rref;
}

absl::Status OwnerTable::on_create(LedgerCore& core, const RRefId& rref, const ForkId& fork,
                                   const WorkerInfo& sender, Description description, Time now,
                                   Actions& actions) {
  if (rref.empty() || fork.empty() || rref.creator != sender.incarnation ||
      fork.creator != sender.incarnation) {
    return absl::PermissionDeniedError(absl::StrCat("create of ", describe(rref, fork), " by ",
                                                    describe(sender),
                                                    " refused: the ids are not its own"));
  }
  if (!SINEW_PLANTED_BUG(kCreateAfterDelete) && tombstones_.contains(fork)) {
    return absl::FailedPreconditionError(
        absl::StrCat("create of ", describe(rref, fork), " by ", describe(sender),
                     " creates nothing: the reference was deleted before the call arrived"));
  }
  const ForkId key = public_part(fork);
  if (entries_.contains(rref) || forks_.contains(key)) {
    return absl::AlreadyExistsError(absl::StrCat("create of ", describe(rref, fork), " by ",
                                                 describe(sender),
                                                 " refused: it has been created before"));
  }
  entries_[rref].description = std::move(description);
  Fork listed;
  listed.rref = rref;
  listed.secret = fork.secret;
  listed.holder = sender;
  list_fork(key, std::move(listed));
  actions.push_back(ReferenceChanged{rref});
  settle_parked_under(core, key, now, actions);
  return absl::OkStatus();
}

absl::Status OwnerTable::set_value(const RRefId& rref, absl::Status outcome, Actions& actions) {
  auto entry = entries_.find(rref);
  if (entry == entries_.end()) return unknown_reference(rref);
  if (entry->second.state != ValueState::kPending) {
    return absl::FailedPreconditionError(
        absl::StrCat(describe(rref), " has its value already: a value is set once"));
  }
  entry->second.state = outcome.ok() ? ValueState::kReady : ValueState::kFailed;
  entry->second.error = std::move(outcome);
  actions.push_back(ReferenceChanged{rref});
  end_if_unheld(rref, actions);
  return absl::OkStatus();
}

absl::StatusOr<UseState> OwnerTable::authorise_use(const LedgerCore& core, const RRefId& rref,
                                                   const ForkId& fork, const WorkerInfo& sender) {
  const ForkId key = public_part(fork);
  auto found = forks_.find(key);
  if (found != forks_.end()) {
    absl::Status allowed = check_holder(found->second, rref, fork, sender, "use");
    if (!allowed.ok()) return allowed;
    claim(key, found->second);
    return state_of(rref);
  }
  if (tombstones_.contains(fork)) {
    return absl::FailedPreconditionError(absl::StrCat("use of ", describe(rref, fork), " by ",
                                                      describe(sender),
                                                      " refused: it has been deleted"));
  }
  const bool its_own_creation = rref.creator == sender.incarnation &&
                                fork.creator == sender.incarnation &&
                                sender.incarnation != core.self.incarnation;
  if (its_own_creation && !entries_.contains(rref)) return UseState::kPendingCreation;
  return absl::NotFoundError(absl::StrCat("use of ", describe(rref, fork), " by ", describe(sender),
                                          " refused: no such fork is listed here"));
}

absl::StatusOr<UseState> OwnerTable::state_of(const RRefId& rref) const {
  auto entry = entries_.find(rref);
  if (entry == entries_.end()) return unknown_reference(rref);
  switch (entry->second.state) {
    case ValueState::kPending:
      return UseState::kPendingValue;
    case ValueState::kReady:
      return UseState::kReady;
    case ValueState::kFailed:
      break;
  }
  return entry->second.error;
}

absl::Status OwnerTable::add_handle(const RRefId& rref) {
  auto entry = entries_.find(rref);
  if (entry == entries_.end()) return unknown_reference(rref);
  ++entry->second.handles;
  return absl::OkStatus();
}

absl::Status OwnerTable::release_handle(const RRefId& rref, Actions& actions) {
  auto entry = entries_.find(rref);
  if (entry == entries_.end()) return unknown_reference(rref);
  if (entry->second.handles == 0) {
    return absl::FailedPreconditionError(absl::StrCat(describe(rref), " has no local handle"));
  }
  --entry->second.handles;
  end_if_unheld(rref, actions);
  return absl::OkStatus();
}

void OwnerTable::end_if_unheld(const RRefId& rref, Actions& actions) {
  auto entry = entries_.find(rref);
  if (entry == entries_.end() || !entry->second.forks.empty() || entry->second.handles != 0) return;
  if (entry->second.state == ValueState::kPending) {
    if (SINEW_PLANTED_BUG(kDestroyedTwice)) actions.push_back(DestroyValue{rref});
    return;
  }
  entries_.erase(entry);
  actions.push_back(DestroyValue{rref});
  actions.push_back(ReferenceChanged{rref});
}

// --- Forks ---------------------------------------------------------------------------------------

void OwnerTable::list_fork(const ForkId& key, Fork fork) {
  entries_[fork.rref].forks.insert(key);
  Fork& listed = forks_[key];
  if (listed.state != ForkState::kListed) --unclaimed_;
  if (fork.state != ForkState::kListed) ++unclaimed_;
  listed = std::move(fork);
}

void OwnerTable::remove_fork(LedgerCore& core, ForkMap::iterator fork, Trace trace, Time now,
                             Actions& actions) {
  const ForkId key = fork->first;
  const RRefId rref = fork->second.rref;
  if (fork->second.state != ForkState::kListed) --unclaimed_;
  if (core.is_lost(fork->second.holder)) --held_by_lost_;
  forks_.erase(fork);
  overdue_.erase(key);
  if (trace == Trace::kTombstone) tombstones_.add(key, now + core.options.lease);
  if (auto entry = entries_.find(rref); entry != entries_.end()) entry->second.forks.erase(key);
  actions.push_back(ReferenceChanged{rref});
  end_if_unheld(rref, actions);
}

absl::Status OwnerTable::check_holder(const Fork& fork, const RRefId& rref, const ForkId& named,
                                      const WorkerInfo& sender, const char* wish) const {
  // One text for all three: an attacker learns nothing about which part was wrong.
  if (fork.holder == sender && fork.rref == rref && fork.secret == named.secret) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(wish, " of ", describe(rref, named), " by ",
                                                  describe(sender),
                                                  " refused: it does not hold that fork"));
}

void OwnerTable::claim(const ForkId& key, Fork& fork) {
  if (SINEW_PLANTED_BUG(kClaimIgnored)) return;
  const ForkTransition* step = find_transition(fork.state, ForkEvent::kClaimed);
  if (step == nullptr) return;
  fork.state = step->to;
  --unclaimed_;
  overdue_.erase(key);
}

void OwnerTable::ask(LedgerCore& core, const ForkId& key, Fork& fork, Time now, Actions& actions) {
  const ForkTransition* step = find_transition(fork.state, ForkEvent::kOverdue);
  if (step == nullptr) return;
  fork.state = step->to;
  overdue_.erase(key);
  const auto may_arrive_for = fork.deadline.has_value() ? std::max(*fork.deadline - now, Time(0))
                                                        : core.options.max_may_arrive_for;
  core.send(actions, fork.holder,
            AskClaim{fork.rref, ForkId{key.creator, key.serial, fork.secret}, may_arrive_for});
}

absl::StatusOr<ForkRecord> OwnerTable::share(LedgerCore& core, const RRefId& rref,
                                             const WorkerInfo& target,
                                             std::optional<Time> deadline) {
  auto entry = entries_.find(rref);
  if (entry == entries_.end()) return unknown_reference(rref);
  if (core.is_lost(target)) {
    return about_peer(
        absl::UnavailableError(absl::StrCat(describe(rref), " cannot be sent to ", describe(target),
                                            ": the worker is lost")),
        target.name);
  }
  ForkRecord record;
  record.owner = core.self;
  record.rref = rref;
  record.fork = core.draw_fork();
  record.type_name = entry->second.description.type_name;
  const ForkId key = public_part(record.fork);
  Fork fork;
  fork.rref = rref;
  fork.secret = record.fork.secret;
  fork.holder = target;
  fork.state = ForkState::kUnclaimed;
  fork.deadline = deadline;
  if (deadline.has_value()) overdue_.set(key, *deadline + core.options.lease);
  list_fork(key, std::move(fork));
  return record;
}

void OwnerTable::carrier_failed(LedgerCore& core, const ForkId& fork, Time now, Actions& actions) {
  auto found = forks_.find(public_part(fork));
  if (found != forks_.end()) ask(core, found->first, found->second, now, actions);
}

void OwnerTable::carrier_not_sent(LedgerCore& core, const ForkId& fork, Time now,
                                  Actions& actions) {
  auto found = forks_.find(public_part(fork));
  if (found == forks_.end() || found->second.state != ForkState::kUnclaimed) return;
  remove_fork(core, found, Trace::kNone, now, actions);
}

absl::Status OwnerTable::on_claim(const Claim& message, const WorkerInfo& sender) {
  const ForkId key = public_part(message.fork);
  auto found = forks_.find(key);
  if (found == forks_.end()) {
    // A repeated or late claim.
    if (tombstones_.contains(key)) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("claim of ", describe(message.rref, message.fork),
                                            " by ", describe(sender),
                                            " refused: no such fork is listed here"));
  }
  absl::Status allowed = check_holder(found->second, message.rref, message.fork, sender, "claim");
  if (allowed.ok()) claim(key, found->second);
  return allowed;
}

absl::Status OwnerTable::on_delete(LedgerCore& core, const Delete& message,
                                   const WorkerInfo& sender, Time now, Actions& actions) {
  const ForkId key = public_part(message.fork);
  const Time forget_at = core.tombstone_end(now, message.may_arrive_for);
  auto found = forks_.find(key);
  if (found != forks_.end()) {
    absl::Status allowed =
        check_holder(found->second, message.rref, message.fork, sender, "delete");
    if (!allowed.ok() && !SINEW_PLANTED_BUG(kHolderCheckSkipped)) return allowed;
    const Trace trace = SINEW_PLANTED_BUG(kDeleteNotTombstoned) ? Trace::kNone : Trace::kTombstone;
    remove_fork(core, found, trace, now, actions);
    return absl::OkStatus();
  }
  if (tombstones_.contains(key)) {
    if (SINEW_PLANTED_BUG(kDuplicateDeleteCounted)) {
      auto entry = entries_.find(message.rref);
      if (entry != entries_.end() && !entry->second.forks.empty()) {
        remove_fork(core, forks_.find(*entry->second.forks.begin()), Trace::kTombstone, now,
                    actions);
      }
    }
    return absl::OkStatus();
  }
  // Only a fork that the sender drew itself can be on its way to us: it comes with a creating call.
  // Deletions of other forks are not remembered, else anybody could delete another's fork early.
  if (message.fork.creator != sender.incarnation || message.rref.creator != sender.incarnation) {
    return absl::NotFoundError(absl::StrCat("delete of ", describe(message.rref, message.fork),
                                            " by ", describe(sender),
                                            " refused: no such fork is listed here"));
  }
  if (!SINEW_PLANTED_BUG(kDeleteNotTombstoned) &&
      !tombstones_.add_for_peer(key, forget_at, sender.incarnation,
                                core.options.max_tombstones_per_peer)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("delete of ", describe(message.rref, message.fork), " by ", describe(sender),
                     " not remembered: it has ", core.options.max_tombstones_per_peer,
                     " deletions of unknown forks already"));
  }
  // Uses that wait for the creating call wait in vain.
  actions.push_back(ReferenceChanged{message.rref});
  settle_parked_under(core, key, now, actions);
  return absl::OkStatus();
}

// --- The end of a worker, and time ---------------------------------------------------------------

void OwnerTable::drop_requests_of(LedgerCore& core, const WorkerInfo& worker, Time now,
                                  Actions& actions) {
  for (auto parked = parked_.begin(); parked != parked_.end();) {
    const Request request = parked->second;
    const bool sent_by_it = request.from.incarnation == worker.incarnation;
    if (!sent_by_it && request.parent.creator != worker.incarnation) {
      ++parked;
      continue;
    }
    parked = unpark(parked);
    const absl::Status lost =
        about_peer(absl::UnavailableError(
                       absl::StrCat(describe(request.rref, request.child), ": ", describe(worker),
                                    " was lost before its creating call arrived")),
                   worker.name);
    refuse(core, request, lost, now, actions);
    if (request.kind == Request::Kind::kResolve) actions.push_back(Failed{request.child, lost});
  }
}

void OwnerTable::on_fenced(const WorkerInfo& worker) {
  for (const auto& [key, fork] : forks_) {
    if (fork.holder.incarnation == worker.incarnation) ++held_by_lost_;
  }
}

void OwnerTable::drop_forks_of(LedgerCore& core, const WorkerInfo& worker, Time now,
                               Actions& actions) {
  if (SINEW_PLANTED_BUG(kLossKeepsForks)) return;
  std::vector<ForkId> held;
  for (const auto& [key, fork] : forks_) {
    if (fork.holder.incarnation == worker.incarnation) held.push_back(key);
  }
  // No tombstones: the worker is not listened to any more, and children of these forks are refused
  // because a lost creator cannot create (see may_still_be_created).
  for (const ForkId& key : held) {
    remove_fork(core, forks_.find(key), Trace::kNone, now, actions);
  }
}

void OwnerTable::tick(LedgerCore& core, Time now, Actions& actions) {
  tombstones_.expire(now);
  for (const ForkId& key : overdue_.take_due(now)) {
    auto fork = forks_.find(key);
    if (SINEW_PLANTED_BUG(kClaimIgnored)) {
      remove_fork(core, fork, Trace::kTombstone, now, actions);
    } else {
      // Not dropped: the claim may still be on its way. Asking is safe whatever the network does.
      ask(core, fork->first, fork->second, now, actions);
    }
  }
  for (const ParkingKey& key : parking_ends_.take_due(now)) {
    const auto parked = parked_.find(key);
    const Request request = parked->second;
    unpark(parked);
    const absl::Status late = absl::DeadlineExceededError(
        absl::StrCat(describe(request.rref, request.child), " from ", describe(request.from),
                     " refused: the call that creates the reference did not arrive"));
    refuse(core, request, late, now, actions);
    if (request.kind == Request::Kind::kResolve) actions.push_back(Failed{request.child, late});
  }
}

std::optional<Time> OwnerTable::next_tick() const {
  std::optional<Time> next = tombstones_.next_expiry();
  for (const std::optional<Time>& at : {overdue_.next(), parking_ends_.next()}) {
    if (at.has_value() && (!next.has_value() || *at < *next)) next = at;
  }
  return next;
}

// --- Reports -------------------------------------------------------------------------------------

void OwnerTable::count(LedgerCounters& counters) const {
  counters.owner_entries = entries_.size();
  counters.forks = forks_.size();
  counters.forks_of_lost = held_by_lost_;
  counters.unclaimed_forks = unclaimed_;
  counters.parked = parked_.size();
  counters.tombstones += tombstones_.size();
}

void OwnerTable::report(std::size_t most, std::vector<LiveReference>& references) const {
  for (const auto& [rref, entry] : entries_) {
    if (references.size() >= most) return;
    LiveReference live;
    live.role = Role::kOwner;
    live.rref = rref;
    for (const ForkId& key : entry.forks) live.peers.push_back(forks_.at(key).holder);
    live.state = entry.state == ValueState::kPending ? "pending"
                 : entry.state == ValueState::kReady ? "ready"
                                                     : "failed";
    live.local_handles = entry.handles;
    live.description = entry.description;
    references.push_back(std::move(live));
  }
}

}  // namespace sinew::internal::ledger
