// The part of OwnerTable that deals with requests: children that want to be listed, and records
// that come back to their owner.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rref/internal/ledger_bugs.h"
#include "sinew/rref/internal/ledger_owner.h"

namespace sinew::internal::ledger {

// --- Children of users, and records that come back (R2, R4, R6) ----------------------------------

bool OwnerTable::may_still_be_created(const LedgerCore& core, const Request& request) const {
  // Only a creating call can bring a parent that we do not know, and then its caller drew both ids.
  const bool parent_is_creating_fork = request.parent.creator == request.rref.creator &&
                                       request.rref.creator != core.self.incarnation;
  const bool right_sender =
      request.kind == Request::Kind::kList || request.from.incarnation == request.rref.creator;
  return parent_is_creating_fork && right_sender && !request.rref.empty() &&
         !core.lost.contains(request.rref.creator) && !entries_.contains(request.rref) &&
         !tombstones_.contains(request.parent);
}

absl::StatusOr<OwnerTable::Verdict> OwnerTable::judge(const LedgerCore& core,
                                                      const Request& request) const {
  const auto refused = [&request](const char* why) {
    return absl::StrCat(describe(request.rref, request.child), " that ", describe(request.from),
                        " was given under ", describe(request.parent), " refused: ", why);
  };
  if (SINEW_PLANTED_BUG(kParentCheckSkipped) && entries_.contains(request.rref)) {
    return Verdict::kAdmit;
  }
  auto found = forks_.find(public_part(request.parent));
  if (found == forks_.end()) {
    if (may_still_be_created(core, request)) return Verdict::kWait;
    return absl::NotFoundError(refused("the parent is not listed here"));
  }
  const Fork& parent = found->second;
  if (parent.rref != request.rref) {
    return absl::PermissionDeniedError(refused("the parent belongs to another reference"));
  }
  if (request.child.creator != parent.holder.incarnation) {
    return absl::PermissionDeniedError(refused("its id was not drawn by the parent's holder"));
  }
  if (tombstones_.contains(request.child)) {
    return absl::FailedPreconditionError(refused("it has been deleted"));
  }
  const bool resolve = request.kind == Request::Kind::kResolve;
  if (resolve && request.from != parent.holder) {
    return absl::PermissionDeniedError(refused("the sender does not hold the parent"));
  }
  TokenInput input;
  input.parent_secret = parent.secret;
  input.rref = request.rref;
  input.parent = public_part(request.parent);
  input.child = public_part(request.child);
  input.receiver = resolve ? core.self : request.from;
  if (!tokens_equal(core.options.make_token(input), request.token)) {
    return absl::PermissionDeniedError(refused("the token does not vouch for it"));
  }
  return Verdict::kAdmit;
}

void OwnerTable::admit(LedgerCore& core, const Request& request, Time now, Actions& actions) {
  // The token proves that the parent's holder has its fork.
  if (auto parent = forks_.find(public_part(request.parent)); parent != forks_.end()) {
    claim(parent->first, parent->second);
  }
  if (request.kind == Request::Kind::kResolve) {
    ++entries_[request.rref].handles;
    core.refused.add(request.child, now + core.options.lease);
    core.send(actions, request.from, ChildDone{public_part(request.child)});
    return;
  }
  Fork fork;
  fork.rref = request.rref;
  fork.secret = request.child.secret;
  fork.holder = request.from;
  list_fork(public_part(request.child), std::move(fork));
  core.send(actions, request.from, ForkAdded{request.rref, public_part(request.child)});
}

void OwnerTable::refuse(LedgerCore& core, const Request& request, const absl::Status& reason,
                        Time now, Actions& actions) {
  if (request.kind == Request::Kind::kResolve) {
    core.refused.add(request.child, now + core.options.lease);
    core.send(actions, request.from, ChildDone{public_part(request.child)});
    return;
  }
  if (SINEW_PLANTED_BUG(kRefusalNotSent)) return;
  core.send(actions, request.from, ForkRefused{request.rref, public_part(request.child), reason});
}

absl::Status OwnerTable::on_add_fork(LedgerCore& core, const AddFork& message,
                                     const WorkerInfo& sender, Time now, Actions& actions) {
  Request request{Request::Kind::kList,
                  message.rref,
                  message.parent,
                  message.child,
                  message.token,
                  sender,
                  now};
  auto listed = forks_.find(public_part(message.child));
  if (listed != forks_.end()) {
    // Repeated: add is a set operation.
    absl::Status same = check_holder(listed->second, message.rref, message.child, sender, "adding");
    if (same.ok()) {
      core.send(actions, sender, ForkAdded{message.rref, public_part(message.child)});
    } else {
      refuse(core, request, same, now, actions);
    }
    return same;
  }
  absl::StatusOr<Verdict> verdict = judge(core, request);
  absl::Status status = verdict.status();
  if (verdict.ok() && *verdict == Verdict::kWait) {
    status = park(core, request, now);
    if (status.ok()) return status;
  }
  settle_request(core, request, status, now, actions);
  return status;
}

absl::StatusOr<Received> OwnerTable::resolve(LedgerCore& core, const ForkRecord& record,
                                             const WorkerInfo& sender, Time now, Actions& actions) {
  const ForkId key = public_part(record.fork);
  Received received{Role::kOwner, record.rref, record.fork, Received::State::kUsable};
  if (core.refused.contains(key) || is_resolving(key, sender)) {
    return absl::AlreadyExistsError(absl::StrCat(describe(record.rref, record.fork), " from ",
                                                 describe(sender),
                                                 " refused: it has been received before"));
  }
  if (record.parent.empty()) {
    // The owner gave it to itself: the fork turns into a local handle.
    auto found = forks_.find(key);
    if (found == forks_.end()) {
      return absl::NotFoundError(absl::StrCat(describe(record.rref, record.fork), " from ",
                                              describe(sender),
                                              " refused: no such fork is listed here"));
    }
    absl::Status allowed = check_holder(found->second, record.rref, record.fork, sender, "receipt");
    if (!allowed.ok()) return allowed;
    ++entries_[record.rref].handles;
    remove_fork(core, found, Trace::kTombstone, now, actions);
    core.refused.add(key, now + core.options.lease);
    return received;
  }
  Request request{
      Request::Kind::kResolve, record.rref, record.parent, key, record.token, sender, now};
  absl::StatusOr<Verdict> verdict = judge(core, request);
  absl::Status status = verdict.status();
  if (verdict.ok() && *verdict == Verdict::kWait) {
    status = park(core, request, now);
    if (status.ok()) {
      received.state = Received::State::kWaiting;
      return received;
    }
  }
  if (status.ok()) {
    admit(core, request, now, actions);
    return received;
  }
  // A record by a worker that does not hold the parent gets an error and changes nothing (R4).
  if (!absl::IsPermissionDenied(status)) refuse(core, request, status, now, actions);
  return status;
}

void OwnerTable::settle_request(LedgerCore& core, const Request& request,
                                const absl::Status& verdict, Time now, Actions& actions) {
  if (verdict.ok()) {
    admit(core, request, now, actions);
  } else {
    refuse(core, request, verdict, now, actions);
  }
}

// --- Requests that overtook the creating call ----------------------------------------------------

absl::Status OwnerTable::park(LedgerCore& core, Request request, Time now) {
  const ParkingKey key{public_part(request.parent), public_part(request.child),
                       request.from.incarnation};
  if (parked_.contains(key)) return absl::OkStatus();
  std::size_t& count = parked_by_[key.from];
  if (count >= core.options.max_parked_per_peer) {
    return absl::ResourceExhaustedError(
        absl::StrCat(describe(request.rref, request.child), " from ", describe(request.from),
                     " refused: ", count, " of its references wait for their creation already"));
  }
  ++count;
  request.expires = now + core.options.park_for;
  parking_ends_.set(key, request.expires);
  if (request.kind == Request::Kind::kResolve) resolving_.emplace(key.child, key);
  parked_.emplace(key, std::move(request));
  return absl::OkStatus();
}

OwnerTable::ParkingMap::iterator OwnerTable::unpark(ParkingMap::iterator parked) {
  auto count = parked_by_.find(parked->first.from);
  if (--count->second == 0) parked_by_.erase(count);
  parking_ends_.erase(parked->first);
  const auto [first, last] = resolving_.equal_range(parked->first.child);
  const auto resolving =
      std::find_if(first, last, [&](const auto& entry) { return entry.second == parked->first; });
  if (resolving != last) resolving_.erase(resolving);
  return parked_.erase(parked);
}

void OwnerTable::settle_parked_under(LedgerCore& core, const ForkId& parent, Time now,
                                     Actions& actions) {
  auto parked = parked_.lower_bound(ParkingKey{public_part(parent), ForkId{}, Incarnation{}});
  while (parked != parked_.end() && parked->first.parent == public_part(parent)) {
    const Request request = parked->second;
    parked = unpark(parked);
    const absl::Status status = judge(core, request).status();
    settle_request(core, request, status, now, actions);
    if (request.kind != Request::Kind::kResolve) continue;
    if (status.ok()) {
      actions.push_back(Confirmed{request.child});
    } else {
      actions.push_back(Failed{request.child, status});
    }
  }
}

bool OwnerTable::is_resolving(const ForkId& child, const WorkerInfo& sender) const {
  const auto [first, last] = resolving_.equal_range(public_part(child));
  return std::any_of(first, last,
                     [&](const auto& entry) { return entry.second.from == sender.incarnation; });
}

bool OwnerTable::cancel_resolve(LedgerCore& core, const ForkId& child, Time now, Actions& actions) {
  const auto resolving = resolving_.find(public_part(child));
  if (resolving == resolving_.end()) return false;
  const auto parked = parked_.find(resolving->second);
  refuse(core, parked->second, absl::CancelledError(), now, actions);
  unpark(parked);
  return true;
}

}  // namespace sinew::internal::ledger
