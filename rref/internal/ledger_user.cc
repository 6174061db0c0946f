#include "sinew/rref/internal/ledger_user.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rref/internal/ledger_bugs.h"

namespace sinew::internal::ledger {

namespace {

absl::Status unknown_fork(const ForkId& fork) {
  return absl::NotFoundError(absl::StrCat(describe(fork), " is not held here"));
}

absl::Status owner_lost(const RRefId& rref, const WorkerInfo& owner) {
  return about_peer(absl::UnavailableError(absl::StrCat(
                        describe(rref), ": owner lost: ", describe(owner),
                        " has ended or its lease has; the value went with that process")),
                    owner.name);
}

}  // namespace

// --- Creation and local handles ------------------------------------------------------------------

absl::StatusOr<Created> UserTable::create(LedgerCore& core, const WorkerInfo& owner,
                                          Description description) {
  if (core.is_lost(owner)) {
    return about_peer(absl::UnavailableError(absl::StrCat("no reference made on ", describe(owner),
                                                          ": the worker is lost")),
                      owner.name);
  }
  User user;
  user.rref = core.draw_rref();
  user.fork = core.draw_fork();
  user.owner = owner;
  user.description = std::move(description);
  const Created created{user.rref, user.fork};
  add(public_part(created.fork), std::move(user));
  return created;
}

absl::Status UserTable::create_succeeded(LedgerCore& core, const ForkId& fork, Time now,
                                         Actions& actions) {
  auto user = users_.find(public_part(fork));
  if (user == users_.end()) return unknown_fork(fork);
  apply(core, user, UserEvent::kCreated, absl::OkStatus(), now, actions);
  return absl::OkStatus();
}

absl::Status UserTable::create_failed(LedgerCore& core, const ForkId& fork, absl::Status error,
                                      std::optional<Time> deadline, Time now, Actions& actions) {
  auto user = users_.find(public_part(fork));
  if (user == users_.end()) return unknown_fork(fork);
  if (user->second.state == UserState::kCreating) {
    user->second.may_arrive_until = deadline.value_or(now + core.options.max_may_arrive_for);
  }
  const absl::Status named(
      error.code(), absl::StrCat("creation of ", describe(user->second.rref), " on ",
                                 describe(user->second.owner), " failed: ", error.message()));
  apply(core, user, UserEvent::kCreateFailed, named, now, actions);
  return absl::OkStatus();
}

absl::StatusOr<UserView> UserTable::view(const ForkId& fork) const {
  auto found = users_.find(public_part(fork));
  if (found == users_.end()) return unknown_fork(fork);
  const User& user = found->second;
  if (!user.error.ok()) return user.error;
  if (user.handles == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(describe(user.rref, user.fork), " has been released here"));
  }
  UserView view;
  view.owner = user.owner;
  view.rref = user.rref;
  view.fork = user.fork;
  view.state = user.state == UserState::kUnconfirmed ? UserView::State::kUnconfirmed
                                                     : UserView::State::kUsable;
  view.confirmed_by_owner = user.state == UserState::kListed;
  return view;
}

absl::Status UserTable::add_handle(const ForkId& fork) {
  auto user = users_.find(public_part(fork));
  if (user == users_.end()) return unknown_fork(fork);
  if (user->second.handles == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(describe(user->second.rref, user->second.fork), " has been released here"));
  }
  ++user->second.handles;
  return absl::OkStatus();
}

absl::Status UserTable::release_handle(LedgerCore& core, const ForkId& fork, Time now,
                                       Actions& actions) {
  auto user = users_.find(public_part(fork));
  if (user == users_.end()) return unknown_fork(fork);
  if (user->second.handles == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(describe(user->second.rref, user->second.fork), " has no local handle"));
  }
  --user->second.handles;
  settle(core, user, now, actions);
  return absl::OkStatus();
}

void UserTable::add(const ForkId& key, User user) {
  tally(users_.emplace(key, std::move(user)).first->second, Fate::kStays);
}

void UserTable::tally(User& user, Fate fate) {
  held_ -= user.held;
  pending_ -= user.pending;
  // One that is gone is kept only to tell a handle of this program why it is of no use any more: no
  // other worker knows it.
  const bool of_no_use = user.state == UserState::kGone && user.handles > 0;
  user.held = fate == Fate::kStays && !of_no_use;
  user.pending =
      user.held && (user.state == UserState::kCreating || user.state == UserState::kUnconfirmed);
  held_ += user.held;
  pending_ += user.pending;
}

// --- The transition table at work ----------------------------------------------------------------

void UserTable::fail(User& user, const absl::Status& error, Actions& actions) {
  if (!user.error.ok()) return;  // the first reason stays
  user.error = error;
  actions.push_back(Failed{user.fork, error});
}

UserTable::UserMap::iterator UserTable::apply(LedgerCore& core, UserMap::iterator user,
                                              UserEvent event, absl::Status error, Time now,
                                              Actions& actions) {
  const UserTransition* step = find_transition(user->second.state, event);
  if (step == nullptr) return std::next(user);
  user->second.state = step->to;
  if (step->effects.fail) fail(user->second, error, actions);
  if (step->effects.confirm && user->second.error.ok()) {
    actions.push_back(Confirmed{user->second.fork});
  }
  if (step->effects.tell_giver) {
    core.send(actions, *user->second.giver, ChildDone{user->first});
  }
  return settle(core, user, now, actions);
}

/// Sends the Delete that is owed as soon as nothing needs the fork, and forgets the fork as soon as
/// neither side knows it any more. Returns the next fork.
UserTable::UserMap::iterator UserTable::settle(LedgerCore& core, UserMap::iterator user, Time now,
                                               Actions& actions) {
  User& fork = user->second;
  const bool unneeded = (fork.handles == 0 || !fork.error.ok()) && fork.children == 0;
  const bool listed =
      fork.state == UserState::kListed ||
      (SINEW_PLANTED_BUG(kDeleteBeforeConfirmation) && fork.state == UserState::kUnconfirmed);
  if (listed && unneeded) {
    Delete message{fork.rref, fork.fork, std::chrono::nanoseconds(0)};
    if (fork.may_arrive_until.has_value()) {
      message.may_arrive_for = std::max(*fork.may_arrive_until - now, Time(0));
    }
    core.send(actions, fork.owner, message,
              fork.handles == 0 ? std::move(fork.description) : fork.description);
    if (fork.state == UserState::kListed) {
      fork.state = find_transition(fork.state, UserEvent::kDeleteSent)->to;
    } else {
      fork.state = UserState::kGone;
    }
  }
  const bool ends = fork.state == UserState::kGone && fork.handles == 0 && fork.children == 0;
  tally(fork, ends ? Fate::kEnds : Fate::kStays);
  if (!ends) return std::next(user);
  // A repeated copy of the message that brought it must not bring it back.
  if (fork.giver.has_value()) core.refused.add(user->first, now + core.options.lease);
  return users_.erase(user);
}

// --- Passing on and receiving (R2, R6) -----------------------------------------------------------

absl::StatusOr<ForkRecord> UserTable::share(LedgerCore& core, const ForkId& fork,
                                            const WorkerInfo& target,
                                            std::optional<Time> deadline) {
  absl::StatusOr<UserView> usable = view(fork);
  if (!usable.ok()) return usable.status();
  if (usable->state == UserView::State::kUnconfirmed) {
    return absl::FailedPreconditionError(
        absl::StrCat(describe(usable->rref, usable->fork), " cannot be sent to ", describe(target),
                     " before ", describe(usable->owner), " has confirmed it"));
  }
  if (core.is_lost(target)) {
    return about_peer(
        absl::UnavailableError(absl::StrCat(describe(usable->rref), " cannot be sent to ",
                                            describe(target), ": the worker is lost")),
        target.name);
  }
  User& user = users_.find(public_part(fork))->second;
  ForkRecord record;
  record.owner = user.owner;
  record.rref = user.rref;
  record.parent = public_part(user.fork);
  record.fork = public_part(core.draw_fork());
  record.type_name = user.description.type_name;
  TokenInput input;
  input.parent_secret = user.fork.secret;
  input.rref = user.rref;
  input.parent = record.parent;
  input.child = record.fork;
  input.receiver = target;
  record.token = core.options.make_token(input);
  if (!SINEW_PLANTED_BUG(kPendingChildNotKept)) {
    // Counted before the record can leave: our own release must not overtake the child (R2).
    ++user.children;
    children_.emplace(record.fork, Child{record.parent, target, deadline, false});
    if (deadline.has_value()) overdue_.set(record.fork, *deadline + core.options.lease);
  }
  return record;
}

absl::StatusOr<Received> UserTable::receive(LedgerCore& core, const ForkRecord& record,
                                            const WorkerInfo& sender, Description description,
                                            Time now, Actions& actions) {
  const ForkId key = public_part(record.fork);
  const auto refused = [&](const char* why) {
    return absl::StrCat(describe(record.rref, record.fork), " of ", describe(record.owner),
                        " from ", describe(sender), " refused: ", why);
  };
  if (record.rref.empty() || key.empty() || record.owner.incarnation.value == 0 ||
      record.owner.incarnation == core.self.incarnation) {
    return absl::InvalidArgumentError(refused("the record is malformed"));
  }
  const bool from_owner = sender == record.owner;
  if (key.creator != sender.incarnation || from_owner != record.parent.empty()) {
    return absl::PermissionDeniedError(refused("the sender may not give it"));
  }
  if (users_.contains(key) || core.refused.contains(key)) {
    return absl::AlreadyExistsError(refused("it has been received before, or came too late"));
  }
  if (core.is_lost(record.owner)) {
    core.refused.add(key, now + core.options.lease);
    if (!from_owner) core.send(actions, sender, ChildDone{key});
    return owner_lost(record.rref, record.owner);
  }
  User user;
  user.fork = key;
  user.rref = record.rref;
  user.owner = record.owner;
  user.giver = sender;
  user.description = std::move(description);
  Received received{Role::kUser, record.rref, record.fork, Received::State::kUsable};
  if (from_owner) {
    user.fork.secret = record.fork.secret;
    user.state = UserState::kListed;
    core.send(actions, record.owner, Claim{record.rref, user.fork});
  } else {
    user.fork.secret = core.options.draw_secret();
    user.state = UserState::kUnconfirmed;
    core.send(actions, record.owner, AddFork{record.rref, record.parent, user.fork, record.token});
    if (SINEW_PLANTED_BUG(kChildDoneEarly)) core.send(actions, sender, ChildDone{key});
    received.state = Received::State::kWaiting;
  }
  received.fork = user.fork;
  add(key, std::move(user));
  return received;
}

void UserTable::ask(LedgerCore& core, ChildMap::iterator child, Time now, Actions& actions) {
  if (child->second.asked) return;
  child->second.asked = true;
  overdue_.erase(child->first);
  const auto may_arrive_for = child->second.deadline.has_value()
                                  ? std::max(*child->second.deadline - now, Time(0))
                                  : core.options.max_may_arrive_for;
  core.send(actions, child->second.target, AskChild{child->first, may_arrive_for});
}

void UserTable::carrier_failed(LedgerCore& core, const ForkId& child, Time now, Actions& actions) {
  auto found = children_.find(public_part(child));
  if (found != children_.end()) ask(core, found, now, actions);
}

void UserTable::carrier_not_sent(LedgerCore& core, const ForkId& child, Time now,
                                 Actions& actions) {
  auto found = children_.find(public_part(child));
  if (found != children_.end()) release_child(core, found, now, actions);
}

UserTable::ChildMap::iterator UserTable::release_child(LedgerCore& core, ChildMap::iterator child,
                                                       Time now, Actions& actions) {
  auto parent = users_.find(child->second.parent);
  overdue_.erase(child->first);
  auto next = children_.erase(child);
  --parent->second.children;
  settle(core, parent, now, actions);
  return next;
}

// --- Messages ------------------------------------------------------------------------------------

absl::Status UserTable::on_fork_added(LedgerCore& core, const ForkAdded& message,
                                      const WorkerInfo& sender, Time now, Actions& actions) {
  auto user = users_.find(public_part(message.child));
  if (user == users_.end()) return absl::OkStatus();  // repeated, and the fork is gone
  if (user->second.owner != sender || user->second.rref != message.rref) {
    return absl::PermissionDeniedError(absl::StrCat(describe(message.rref, message.child),
                                                    " confirmed by ", describe(sender),
                                                    ", which is not its owner"));
  }
  apply(core, user, UserEvent::kAdded, absl::OkStatus(), now, actions);
  return absl::OkStatus();
}

absl::Status UserTable::on_fork_refused(LedgerCore& core, const ForkRefused& message,
                                        const WorkerInfo& sender, Time now, Actions& actions) {
  auto user = users_.find(public_part(message.child));
  if (user == users_.end()) return absl::OkStatus();
  if (user->second.owner != sender || user->second.rref != message.rref) {
    return absl::PermissionDeniedError(absl::StrCat(describe(message.rref, message.child),
                                                    " refused by ", describe(sender),
                                                    ", which is not its owner"));
  }
  // A refusal without a reason must still be an error.
  const absl::Status reason =
      message.reason.ok() ? absl::InternalError("no reason given") : message.reason;
  const absl::Status error(reason.code(), absl::StrCat(describe(sender), ": ", reason.message()));
  apply(core, user, UserEvent::kRefused, error, now, actions);
  return absl::OkStatus();
}

absl::Status UserTable::on_child_done(LedgerCore& core, const ChildDone& message,
                                      const WorkerInfo& sender, Time now, Actions& actions) {
  auto child = children_.find(public_part(message.child));
  if (child == children_.end()) {
    if (message.child.creator == core.self.incarnation) return absl::OkStatus();  // repeated
    return absl::PermissionDeniedError(absl::StrCat(describe(message.child), " settled by ",
                                                    describe(sender), " was not given by us"));
  }
  if (child->second.target != sender) {
    return absl::PermissionDeniedError(absl::StrCat(describe(message.child), " settled by ",
                                                    describe(sender), " was given to ",
                                                    describe(child->second.target)));
  }
  release_child(core, child, now, actions);
  return absl::OkStatus();
}

absl::Status UserTable::on_ask_claim(LedgerCore& core, const AskClaim& message,
                                     const WorkerInfo& sender, Time now, Actions& actions) {
  const ForkId key = public_part(message.fork);
  if (key.creator != sender.incarnation) {
    return absl::PermissionDeniedError(
        absl::StrCat(describe(key), " asked for by ", describe(sender), ", which did not make it"));
  }
  auto user = users_.find(key);
  if (user != users_.end() && user->second.fork == message.fork && user->second.owner == sender) {
    // Gone: our Delete is under way.
    if (user->second.state == UserState::kListed) {
      core.send(actions, sender, Claim{user->second.rref, user->second.fork});
    }
    return absl::OkStatus();
  }
  // We have not got it, or no longer. If its message still comes it must not make a reference that
  // the owner does not list.
  if (!core.refused.add_for_peer(key, core.tombstone_end(now, message.may_arrive_for),
                                 sender.incarnation, core.options.max_tombstones_per_peer)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        describe(key), " asked for by ", describe(sender), ": it asks for too many forks"));
  }
  core.send(actions, sender, Delete{message.rref, message.fork, std::chrono::nanoseconds(0)});
  return absl::OkStatus();
}

absl::Status UserTable::on_ask_child(LedgerCore& core, const AskChild& message,
                                     const WorkerInfo& sender, Time now, Actions& actions) {
  const ForkId key = public_part(message.child);
  if (key.creator != sender.incarnation) {
    return absl::PermissionDeniedError(
        absl::StrCat(describe(key), " asked for by ", describe(sender), ", which did not make it"));
  }
  auto user = users_.find(key);
  if (user != users_.end()) {
    // Unconfirmed: ChildDone follows when the owner has answered.
    if (user->second.state != UserState::kUnconfirmed) {
      core.send(actions, sender, ChildDone{key});
    }
    return absl::OkStatus();
  }
  if (!core.refused.add_for_peer(key, core.tombstone_end(now, message.may_arrive_for),
                                 sender.incarnation, core.options.max_tombstones_per_peer)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        describe(key), " asked for by ", describe(sender), ": it asks for too many forks"));
  }
  core.send(actions, sender, ChildDone{key});
  return absl::OkStatus();
}

// --- The end of a worker, shutdown, and time -----------------------------------------------------

void UserTable::worker_lost(LedgerCore& core, const WorkerInfo& worker, Time now,
                            Actions& actions) {
  for (auto user = users_.begin(); user != users_.end();) {
    if (user->second.owner.incarnation != worker.incarnation) {
      ++user;
      continue;
    }
    const absl::Status lost = owner_lost(user->second.rref, user->second.owner);
    user = apply(core, user, UserEvent::kOwnerLost, lost, now, actions);
  }
  for (auto child = children_.begin(); child != children_.end();) {
    // The lost worker will not answer; under a lost owner there is nothing left to keep.
    const bool over = child->second.target.incarnation == worker.incarnation ||
                      users_.at(child->second.parent).owner.incarnation == worker.incarnation;
    child = over ? release_child(core, child, now, actions) : std::next(child);
  }
}

void UserTable::release_all(LedgerCore& core, Time now, Actions& actions) {
  for (auto user = users_.begin(); user != users_.end();) {
    const absl::Status deleted = absl::FailedPreconditionError(absl::StrCat(
        describe(user->second.rref, user->second.fork), " of ", describe(user->second.owner),
        " has been deleted: this worker released its references at shutdown"));
    fail(user->second, deleted, actions);
    user = settle(core, user, now, actions);
  }
}

void UserTable::tick(LedgerCore& core, Time now, Actions& actions) {
  for (const ForkId& key : overdue_.take_due(now)) ask(core, children_.find(key), now, actions);
}

std::optional<Time> UserTable::next_tick() const { return overdue_.next(); }

// --- Reports -------------------------------------------------------------------------------------

void UserTable::count(LedgerCounters& counters) const {
  counters.users = held_;
  counters.pending_users = pending_;
  counters.pending_children = children_.size();
}

void UserTable::report(std::size_t most, std::vector<LiveReference>& references) const {
  for (const auto& [key, user] : users_) {
    if (references.size() >= most) return;
    LiveReference live;
    live.role = Role::kUser;
    live.rref = user.rref;
    live.fork = user.fork;
    live.peers.push_back(user.owner);
    live.state = user.state == UserState::kCreating      ? "creating"
                 : user.state == UserState::kUnconfirmed ? "unconfirmed"
                 : user.state == UserState::kListed      ? "listed"
                                                         : "gone";
    if (!user.error.ok()) absl::StrAppend(&live.state, " (", user.error.message(), ")");
    live.local_handles = user.handles;
    live.pending_children = user.children;
    live.description = user.description;
    references.push_back(std::move(live));
  }
}

}  // namespace sinew::internal::ledger
