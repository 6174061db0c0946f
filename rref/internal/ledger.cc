#include "sinew/rref/internal/ledger.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "sinew/rref/internal/ledger_bugs.h"

namespace sinew::internal::ledger {

namespace {

// Not its fault: it may not know yet that it was taken for lost.
absl::Status from_lost(const char* what, const WorkerInfo& sender) {
  return absl::UnavailableError(
      absl::StrCat(what, " from ", describe(sender), " refused: its lease has ended"));
}

}  // namespace

Ledger::Ledger(WorkerInfo self, LedgerOptions options) {
  core_.self = std::move(self);
  core_.options = std::move(options);
}

absl::StatusOr<Created> Ledger::create(const WorkerInfo& owner, Description description) {
  if (owner.incarnation == core_.self.incarnation) {
    return absl::InvalidArgumentError("a reference on this worker itself is made by own()");
  }
  return user_.create(core_, owner, std::move(description));
}

Handled Ledger::create_succeeded(const ForkId& fork, Time now) {
  Handled done;
  done.status = user_.create_succeeded(core_, fork, now, done.actions);
  return done;
}

Handled Ledger::create_failed(const ForkId& fork, const absl::Status& error,
                              std::optional<Time> deadline, Time now) {
  Handled done;
  done.status = user_.create_failed(core_, fork, error, deadline, now, done.actions);
  return done;
}

absl::StatusOr<UserView> Ledger::view(const ForkId& fork) const { return user_.view(fork); }

absl::Status Ledger::add_user_handle(const ForkId& fork) { return user_.add_handle(fork); }

Handled Ledger::release_user(const ForkId& fork, Time now) {
  Handled done;
  if (owner_.cancel_resolve(core_, fork, now, done.actions)) return done;
  done.status = user_.release_handle(core_, fork, now, done.actions);
  return done;
}

absl::StatusOr<ForkRecord> Ledger::share_user(const ForkId& fork, const WorkerInfo& target,
                                              std::optional<Time> deadline) {
  return user_.share(core_, fork, target, deadline);
}

absl::StatusOr<ForkRecord> Ledger::share_owned(const RRefId& rref, const WorkerInfo& target,
                                               std::optional<Time> deadline) {
  return owner_.share(core_, rref, target, deadline);
}

Handled Ledger::carrier_failed(const ForkId& fork, Time now) {
  Handled done;
  owner_.carrier_failed(core_, fork, now, done.actions);
  user_.carrier_failed(core_, fork, now, done.actions);
  return done;
}

Handled Ledger::carrier_not_sent(const ForkId& fork, Time now) {
  Handled done;
  owner_.carrier_not_sent(core_, fork, now, done.actions);
  user_.carrier_not_sent(core_, fork, now, done.actions);
  return done;
}

Outcome<Received> Ledger::receive(const ForkRecord& record, const WorkerInfo& sender,
                                  Description description, Time now) {
  Outcome<Received> outcome{absl::UnknownError(""), {}};
  if (core_.is_lost(sender)) {
    outcome.result = from_lost("a reference", sender);
  } else if (record.owner == core_.self) {
    outcome.result = owner_.resolve(core_, record, sender, now, outcome.actions);
  } else {
    outcome.result =
        user_.receive(core_, record, sender, std::move(description), now, outcome.actions);
  }
  return outcome;
}

RRefId Ledger::own(ValueState state, Description description) {
  return owner_.own(core_, state, std::move(description));
}

Handled Ledger::on_create(const RRefId& rref, const ForkId& fork, const WorkerInfo& sender,
                          Description description, Time now) {
  Handled done;
  if (core_.is_lost(sender)) {
    done.status = from_lost("create", sender);
  } else {
    done.status =
        owner_.on_create(core_, rref, fork, sender, std::move(description), now, done.actions);
  }
  return done;
}

Handled Ledger::owner_fulfilled(const RRefId& rref) {
  Handled done;
  done.status = owner_.set_value(rref, absl::OkStatus(), done.actions);
  return done;
}

Handled Ledger::owner_failed(const RRefId& rref, const absl::Status& error) {
  Handled done;
  const absl::Status failure = error.ok() ? absl::InternalError("no reason given") : error;
  done.status = owner_.set_value(rref, failure, done.actions);
  return done;
}

absl::StatusOr<UseState> Ledger::authorise_use(const RRefId& rref, const ForkId& fork,
                                               const WorkerInfo& sender) {
  if (core_.is_lost(sender)) return from_lost("a use", sender);
  return owner_.authorise_use(core_, rref, fork, sender);
}

absl::StatusOr<UseState> Ledger::owned_state(const RRefId& rref) const {
  return owner_.state_of(rref);
}

absl::Status Ledger::add_owned_handle(const RRefId& rref) { return owner_.add_handle(rref); }

Handled Ledger::release_owned(const RRefId& rref) {
  Handled done;
  done.status = owner_.release_handle(rref, done.actions);
  return done;
}

Handled Ledger::handle(const LedgerMessage& message, const WorkerInfo& sender, Time now) {
  Handled done;
  if (core_.is_lost(sender) && !SINEW_PLANTED_BUG(kLostWorkerHeard)) {
    done.status = from_lost(message_name(message), sender);
    return done;
  }
  struct Dispatch {
    Ledger& ledger;
    const WorkerInfo& sender;
    Time now;
    Actions& actions;

    absl::Status operator()(const Claim& m) const { return ledger.owner_.on_claim(m, sender); }
    absl::Status operator()(const AddFork& m) const {
      return ledger.owner_.on_add_fork(ledger.core_, m, sender, now, actions);
    }
    absl::Status operator()(const Delete& m) const {
      return ledger.owner_.on_delete(ledger.core_, m, sender, now, actions);
    }
    absl::Status operator()(const ForkAdded& m) const {
      return ledger.user_.on_fork_added(ledger.core_, m, sender, now, actions);
    }
    absl::Status operator()(const ForkRefused& m) const {
      return ledger.user_.on_fork_refused(ledger.core_, m, sender, now, actions);
    }
    absl::Status operator()(const ChildDone& m) const {
      return ledger.user_.on_child_done(ledger.core_, m, sender, now, actions);
    }
    absl::Status operator()(const AskClaim& m) const {
      return ledger.user_.on_ask_claim(ledger.core_, m, sender, now, actions);
    }
    absl::Status operator()(const AskChild& m) const {
      // A record that waits here, at its owner, will be answered when its creation has arrived.
      if (ledger.owner_.is_resolving(m.child, sender)) return absl::OkStatus();
      return ledger.user_.on_ask_child(ledger.core_, m, sender, now, actions);
    }
  };
  done.status = std::visit(Dispatch{*this, sender, now, done.actions}, message);
  return done;
}

Handled Ledger::fence(const WorkerInfo& worker, Time now) {
  Handled done;
  if (!core_.lost.insert(worker.incarnation).second) return done;
  owner_.on_fenced(worker);
  owner_.drop_requests_of(core_, worker, now, done.actions);
  user_.worker_lost(core_, worker, now, done.actions);
  return done;
}

Handled Ledger::worker_lost(const WorkerInfo& worker, Time now) {
  Handled done = fence(worker, now);
  owner_.drop_forks_of(core_, worker, now, done.actions);
  return done;
}

Handled Ledger::tick(Time now) {
  Handled done;
  core_.refused.expire(now);
  owner_.tick(core_, now, done.actions);
  user_.tick(core_, now, done.actions);
  return done;
}

std::optional<Time> Ledger::next_tick() const {
  std::optional<Time> next;
  for (const std::optional<Time>& at :
       {core_.refused.next_expiry(), owner_.next_tick(), user_.next_tick()}) {
    if (at.has_value() && (!next.has_value() || *at < *next)) next = at;
  }
  return next;
}

Handled Ledger::release_all_users(Time now) {
  Handled done;
  user_.release_all(core_, now, done.actions);
  return done;
}

LedgerCounters Ledger::counters() const {
  LedgerCounters counters;
  counters.tombstones = core_.refused.size();
  owner_.count(counters);
  user_.count(counters);
  return counters;
}

std::vector<LiveReference> Ledger::live_references(std::size_t most) const {
  std::vector<LiveReference> references;
  owner_.report(most, references);
  user_.report(most, references);
  return references;
}

}  // namespace sinew::internal::ledger
