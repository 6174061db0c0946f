#include "sinew/tests/rref/support/simulation_programs.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/tests/rref/support/simulation_hostile.h"

namespace sinew::internal::ledger {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::uint64_t tag(const RRefId& rref, int owner) {
  return (rref.serial << 16) ^ (rref.creator.value << 8) ^ static_cast<std::uint64_t>(owner);
}

}  // namespace

void SimulatedPrograms::step() {
  const int number = cluster_.some_node();
  if (number < 0) return;
  cluster_.check_leases(number);
  const std::size_t kind = cluster_.random().below(100);
  if (kind < 22) {
    create(number);
  } else if (kind < 30) {
    own(number);
  } else if (kind < 60) {
    call(number);
  } else if (kind < 75) {
    use(number);
  } else if (kind < 90) {
    drop_some_handle(number);
  } else {
    forge(cluster_, number);
  }
}

int SimulatedPrograms::add_handle(int number, Handle handle) {
  cluster_.node(number).handles.emplace(++last_handle_, std::move(handle));
  return last_handle_;
}

std::map<int, SimulatedCluster::Handle>::iterator SimulatedPrograms::some_handle(int number) {
  auto& handles = cluster_.node(number).handles;
  std::vector<int> usable;
  for (const auto& [id, handle] : handles) {
    if (!handle.waiting && !handle.failed) usable.push_back(id);
  }
  return usable.empty() ? handles.end()
                        : handles.find(usable[cluster_.random().below(usable.size())]);
}

void SimulatedPrograms::own(int number) {
  Node& here = cluster_.node(number);
  const bool pending = cluster_.random().chance(30);  // `remote` to oneself
  Handle handle;
  handle.role = Role::kOwner;
  handle.rref = here.ledger.own(pending ? ValueState::kPending : ValueState::kReady,
                                SimulatedCluster::described());
  ++cluster_.report().created;
  here.entries.insert(handle.rref);
  add_handle(number, handle);
  if (pending) {
    finish_later(number, handle.rref, [](bool) {});
  } else {
    here.values[handle.rref] = tag(handle.rref, number);
  }
}

void SimulatedPrograms::finish_later(int owner, const RRefId& rref,
                                     const std::function<void(bool)>& done) {
  const bool fails = cluster_.random().chance(15);
  cluster_.at(cluster_.now() + cluster_.random().between(Time(0), seconds(4)), [this, owner, rref,
                                                                                fails, done] {
    Node& here = cluster_.node(owner);
    if (!here.alive) return;
    cluster_.check_leases(owner);
    if (!fails) here.values[rref] = tag(rref, owner);
    Handled handled = fails ? here.ledger.owner_failed(rref, absl::InternalError("broken"))
                            : here.ledger.owner_fulfilled(rref);
    if (!handled.status.ok())
      cluster_.violate(absl::StrCat("value not set: ", handled.status.ToString()));
    cluster_.perform(owner, handled);
    done(!fails);
  });
}

void SimulatedPrograms::create(int number) {
  const int owner = cluster_.other_node(number);
  if (owner < 0) return;
  Node& here = cluster_.node(number);
  absl::StatusOr<Created> made =
      here.ledger.create(cluster_.node(owner).info, SimulatedCluster::described());
  if (!made.ok()) return;
  Handle handle;
  handle.rref = made->rref;
  handle.fork = made->fork;
  const ForkId fork = made->fork;
  const RRefId rref = made->rref;
  add_handle(number, handle);
  const Time deadline = cluster_.now() + cluster_.random().between(milliseconds(100), seconds(20));
  cluster_.transmit(number, owner, [this, number, owner, rref, fork, deadline] {
    on_create(owner, number, rref, fork, deadline);
  });
  // The call ends at its deadline, or is cancelled before.
  const Time end =
      cluster_.random().chance(15)
          ? cluster_.now() + cluster_.random().between(Time(0), deadline - cluster_.now())
          : deadline;
  cluster_.at(end, [this, number, fork, deadline] {
    if (!cluster_.node(number).alive) return;
    cluster_.check_leases(number);
    cluster_.perform(number,
                     cluster_.node(number).ledger.create_failed(
                         fork, absl::DeadlineExceededError("no answer"), deadline, cluster_.now()));
  });
}

void SimulatedPrograms::on_create(int owner, int caller, const RRefId& rref, const ForkId& fork,
                                  Time deadline) {
  if (cluster_.now() > deadline) return;
  cluster_.check_leases(owner);
  Node& here = cluster_.node(owner);
  const WorkerInfo& sender = cluster_.node(caller).info;
  Handled handled =
      here.ledger.on_create(rref, fork, sender, SimulatedCluster::described(), cluster_.now());
  cluster_.perform(owner, handled);
  if (!handled.status.ok()) return;
  ++cluster_.report().created;
  here.entries.insert(rref);
  finish_later(owner, rref, [this, owner, caller, fork, deadline](bool worked) {
    cluster_.transmit(owner, caller, [this, caller, fork, deadline, worked] {
      if (cluster_.now() > deadline) return;
      cluster_.check_leases(caller);
      Ledger& ledger = cluster_.node(caller).ledger;
      cluster_.perform(caller, worked ? ledger.create_succeeded(fork, cluster_.now())
                                      : ledger.create_failed(fork, absl::InternalError("broken"),
                                                             deadline, cluster_.now()));
    });
  });
}

absl::StatusOr<ForkRecord> SimulatedPrograms::pack(int number, const Handle& handle, int target,
                                                   Time deadline) {
  Ledger& ledger = cluster_.node(number).ledger;
  return handle.role == Role::kOwner
             ? ledger.share_owned(handle.rref, cluster_.node(target).info, deadline)
             : ledger.share_user(handle.fork, cluster_.node(target).info, deadline);
}

void SimulatedPrograms::call(int number) {
  const int target = cluster_.random().chance(8) ? number : cluster_.other_node(number);
  if (target < 0) return;
  const int id = static_cast<int>(cluster_.calls().size());
  Call made;
  made.from = number;
  made.to = target;
  made.deadline = cluster_.now() + cluster_.random().between(milliseconds(100), seconds(20));
  const Time deadline = made.deadline;
  std::vector<ForkRecord> records;
  const std::size_t count = 1 + cluster_.random().below(2);
  for (std::size_t i = 0; i < count; ++i) {
    auto handle = some_handle(number);
    if (handle == cluster_.node(number).handles.end()) break;
    absl::StatusOr<ForkRecord> record = pack(number, handle->second, target, deadline);
    if (!record.ok()) continue;
    made.carried.push_back(record->fork);
    records.push_back(*std::move(record));
  }
  cluster_.calls().push_back(made);
  if (cluster_.random().chance(3)) {
    for (const ForkId& fork : made.carried) {
      cluster_.perform(number, cluster_.node(number).ledger.carrier_not_sent(fork, cluster_.now()));
    }
    return;
  }
  send_records(number, target, records, deadline,
               [this, number, target, id] { reply(target, number, id); });
  cluster_.at(deadline, [this, number, id] {
    Call& late = cluster_.calls()[static_cast<std::size_t>(id)];
    if (!late.open || !cluster_.node(number).alive) return;
    late.open = false;
    cluster_.check_leases(number);
    for (const ForkId& fork : late.carried) {
      cluster_.perform(number, cluster_.node(number).ledger.carrier_failed(fork, cluster_.now()));
    }
  });
}

void SimulatedPrograms::send_records(int from, int to, const std::vector<ForkRecord>& records,
                                     Time deadline, const std::function<void()>& then) {
  const std::uint64_t id = ++last_carrier_;
  const std::optional<Time> arrives =
      cluster_.transmit(from, to, [this, from, to, records, deadline, then, id] {
        cluster_.under_way().erase(id);
        if (cluster_.now() > deadline) return;
        cluster_.check_leases(to);
        for (const ForkRecord& record : records) take_in(to, from, record);
        then();
      });
  if (arrives.has_value() && *arrives <= deadline) {
    cluster_.under_way().emplace(id, UnderWay{from, to, records});
  }
}

void SimulatedPrograms::take_in(int number, int from, const ForkRecord& record) {
  Node& here = cluster_.node(number);
  Outcome<Received> outcome = here.ledger.receive(record, cluster_.node(from).info,
                                                  SimulatedCluster::described(), cluster_.now());
  if (outcome.result.ok()) {
    ++cluster_.report().received;
    Handle handle;
    handle.role = outcome.result->role;
    handle.rref = outcome.result->rref;
    handle.fork = outcome.result->fork;
    handle.waiting = outcome.result->state == Received::State::kWaiting;
    add_handle(number, handle);
  } else if (absl::IsPermissionDenied(outcome.result.status()) &&
             !here.ledger.is_lost(cluster_.node(from).info)) {
    cluster_.violate(
        absl::StrCat("an honest record was refused: ", outcome.result.status().ToString()));
  }
  cluster_.perform(number, outcome.actions);
}

void SimulatedPrograms::reply(int callee, int caller, int id) {
  const Time deadline = cluster_.calls()[static_cast<std::size_t>(id)].deadline;
  std::vector<ForkRecord> results;
  auto handle = some_handle(callee);
  if (handle != cluster_.node(callee).handles.end() && cluster_.random().chance(50)) {
    absl::StatusOr<ForkRecord> record = pack(callee, handle->second, caller, deadline);
    if (record.ok()) results.push_back(*std::move(record));
  }
  // A result that nobody waits for is thrown away unread.
  const std::uint64_t carrier = ++last_carrier_;
  const std::optional<Time> arrives =
      cluster_.transmit(callee, caller, [this, callee, caller, id, results, deadline, carrier] {
        cluster_.under_way().erase(carrier);
        Call& answered = cluster_.calls()[static_cast<std::size_t>(id)];
        if (cluster_.now() > deadline || !answered.open) return;
        answered.open = false;
        cluster_.check_leases(caller);
        for (const ForkRecord& record : results) take_in(caller, callee, record);
      });
  if (arrives.has_value() && *arrives <= deadline) {
    cluster_.under_way().emplace(carrier, UnderWay{callee, caller, results, id});
  }
}

void SimulatedPrograms::use(int number) {
  auto handle = some_handle(number);
  if (handle == cluster_.node(number).handles.end()) return;
  Node& here = cluster_.node(number);
  const int id = handle->first;
  if (handle->second.role == Role::kOwner) {
    absl::StatusOr<UseState> state = here.ledger.owned_state(handle->second.rref);
    if (!state.ok() && absl::IsNotFound(state.status()))
      cluster_.violate("a local handle lost its value");
    return;
  }
  absl::StatusOr<UserView> view = here.ledger.view(handle->second.fork);
  if (!view.ok())
    return cluster_.violate(absl::StrCat("unusable handle: ", view.status().ToString()));
  const UserView seen = *view;
  const int owner = static_cast<int>(seen.owner.incarnation.value) - 1;
  ++handle->second.uses;
  cluster_.transmit(number, owner, [this, number, owner, seen] { on_use(owner, number, seen); });
  cluster_.at(cluster_.now() + seconds(5), [this, number, id] {
    auto done = cluster_.node(number).handles.find(id);
    if (done != cluster_.node(number).handles.end()) --done->second.uses;
  });
}

void SimulatedPrograms::on_use(int owner, int user, const UserView& seen) {
  cluster_.check_leases(owner);
  Node& here = cluster_.node(owner);
  const WorkerInfo& sender = cluster_.node(user).info;
  absl::StatusOr<UseState> state = here.ledger.authorise_use(seen.rref, seen.fork, sender);
  if (state.ok() && *state == UseState::kReady) {
    ++cluster_.report().uses;
    auto value = here.values.find(seen.rref);
    if (value == here.values.end()) {
      cluster_.violate("a use was allowed of a value that is not there");
    } else if (value->second != tag(seen.rref, owner)) {
      cluster_.violate("a reference yielded another reference's value");
    }
  }
  const bool entitled = cluster_.node(user).alive && !cluster_.fenced_by_time(user, owner) &&
                        !cluster_.node(user).ledger.is_lost(here.info) &&
                        !here.ledger.is_lost(sender) &&
                        cluster_.node(user).ledger.view(seen.fork).ok();
  if (entitled && !state.ok() && state.status().code() != absl::StatusCode::kInternal) {
    cluster_.violate(absl::StrCat("a rightful use was refused: ", state.status().ToString()));
  }
}

void SimulatedPrograms::drop_some_handle(int number) {
  auto& handles = cluster_.node(number).handles;
  if (handles.empty()) return;
  auto handle = std::next(handles.begin(),
                          static_cast<std::ptrdiff_t>(cluster_.random().below(handles.size())));
  if (handle->second.uses == 0) cluster_.release(number, handle);
}

}  // namespace sinew::internal::ledger
