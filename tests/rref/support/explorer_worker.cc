#include "sinew/tests/rref/support/explorer_worker.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "sinew/tests/rref/support/ledger_inspector.h"

namespace sinew::internal::ledger {

namespace {

constexpr Time kCallDeadline =
    std::chrono::seconds(10);  // of every call, on a clock that starts at 0

// The reference of a root has the serial after this, and the fork of a slot the one after that.
std::uint64_t serials_before(int slot) { return static_cast<std::uint64_t>(slot) * 2; }
int slot_of(std::uint64_t serial) { return static_cast<int>((serial - 1) / 2); }

LedgerOptions explorer_options() {
  LedgerOptions options;
  // Secrets that do not depend on the path: states that differ in names only are one state.
  options.draw_secret = [] { return std::uint64_t{42}; };
  options.make_token = test_token;
  return options;
}

WorkerState empty_worker(int worker, std::size_t slots) {
  WorkerState made{Ledger(worker_info(worker), explorer_options()), true, {}, {}, {}};
  made.handles.resize(slots);
  return made;
}

Description described_test() { return Description{"T", "test"}; }

/// The fork that a message is about.
ForkId subject(const LedgerMessage& message) {
  struct Subject {
    ForkId operator()(const Claim& m) const { return m.fork; }
    ForkId operator()(const AddFork& m) const { return m.child; }
    ForkId operator()(const ForkAdded& m) const { return m.child; }
    ForkId operator()(const ForkRefused& m) const { return m.child; }
    ForkId operator()(const ChildDone& m) const { return m.child; }
    ForkId operator()(const Delete& m) const { return m.fork; }
    ForkId operator()(const AskClaim& m) const { return m.fork; }
    ForkId operator()(const AskChild& m) const { return m.child; }
  };
  return std::visit(Subject{}, message);
}

void insert_sorted(std::vector<RRefId>& list, const RRefId& rref) {
  list.insert(std::lower_bound(list.begin(), list.end(), rref), rref);
}

}  // namespace

WorkerInfo worker_info(int worker) {
  const std::uint64_t number = static_cast<std::uint64_t>(worker) + 1;
  return WorkerInfo{absl::StrCat("w", worker), worker, Incarnation{number}};
}

// --- Packets and states --------------------------------------------------------------------------

bool Packet::is_message() const {
  return kind == Kind::kControl || kind == Kind::kRecord || kind == Kind::kCreateCall ||
         kind == Kind::kCreateReply;
}

std::string Packet::text() const {
  std::string text;
  for (const int part : {static_cast<int>(kind), from, to, slot, static_cast<int>(twin)}) {
    text.push_back(static_cast<char>(part));
  }
  if (message.has_value()) put(text, *message);
  if (kind == Kind::kRecord) put(text, record);
  put(text, rref);
  put(text, fork);
  return text;
}

std::string Packet::name() const {
  static constexpr const char* kNames[] = {
      "",     "record", "create", "run", "created", "create given up", "record given up",
      "loss", "step",   "time"};
  const std::string what =
      message.has_value() ? message_name(*message) : kNames[static_cast<std::size_t>(kind)];
  return absl::StrCat(what, slot >= 0 ? absl::StrCat("#", slot) : "", " w", from, ">w", to);
}

std::string WorkerState::text(const SlotFilter& seen) const {
  std::string text = LedgerInspector::fingerprint(
      ledger, [&seen](std::uint64_t serial) { return seen(slot_of(serial)); });
  text.push_back(static_cast<char>(ledger.self().rank));
  text.push_back(alive ? 1 : 0);
  for (std::size_t slot = 0; slot < handles.size(); ++slot) {
    if (!seen(static_cast<int>(slot))) continue;
    const Handle& handle = handles[slot];
    text.push_back(static_cast<char>(handle.status));
    text.push_back(static_cast<char>(handle.role));
    text.push_back(static_cast<char>(handle.shared));
    put(text, handle.fork);
  }
  for (const auto* list : {&created, &destroyed}) {
    for (const RRefId& rref : *list) {
      if (seen(slot_of(rref.serial))) put(text, rref);
    }
    put(text, std::uint64_t{0});  // no rref begins like this
  }
  return text;
}

// --- One worker's turn ---------------------------------------------------------------------------

struct WorkerModel::Turn {
  Reaction reaction;
  const Moment moment;

  WorkerState& worker() { return reaction.next; }
  Ledger& ledger() { return reaction.next.ledger; }
  Handle& handle(int slot) { return reaction.next.handles[static_cast<std::size_t>(slot)]; }

  void violate(std::string what) {
    if (reaction.violation.empty()) reaction.violation = std::move(what);
  }
};

WorkerModel::WorkerModel(const Scenario& scenario)
    : scenario_(scenario), children_(scenario.slots.size()) {
  for (std::size_t i = 0; i < scenario_.slots.size(); ++i) {
    const int parent = scenario_.slots[i].parent;
    if (parent >= 0) children_[static_cast<std::size_t>(parent)].push_back(static_cast<int>(i));
  }
}

WorkerState WorkerModel::started(int worker) const {
  return empty_worker(worker, scenario_.slots.size());
}

WorkerState WorkerModel::dead(int worker) const {
  WorkerState dead = started(worker);
  dead.alive = false;
  return dead;
}

Reaction WorkerModel::react(const WorkerState& worker, const Packet& packet,
                            const Moment& moment) const {
  Turn turn{Reaction{worker, {}, {}}, moment};
  const Actions actions = react_to(turn, packet);
  for (const Action& action : actions) perform(turn, action);
  LedgerInspector::set_last_serial(turn.ledger(), 0);
  return std::move(turn.reaction);
}

Actions WorkerModel::react_to(Turn& turn, const Packet& packet) const {
  const Time now = turn.moment.now;
  switch (packet.kind) {
    case Packet::Kind::kControl:
      return on_control(turn, packet);
    case Packet::Kind::kRecord:
      return on_record(turn, packet);
    case Packet::Kind::kCreateCall:
      return on_create(turn, packet);
    case Packet::Kind::kRunCall:
      return run_call(turn, packet);
    case Packet::Kind::kCreateReply:
      return finish_create(turn, packet);
    case Packet::Kind::kCreateGivenUp:
      return turn.ledger()
          .create_failed(packet.fork, absl::DeadlineExceededError("no answer"), kCallDeadline, now)
          .actions;
    case Packet::Kind::kRecordGivenUp:
      return turn.ledger().carrier_failed(packet.fork, now).actions;
    case Packet::Kind::kLost:
      return turn.ledger().worker_lost(worker_info(packet.from), now).actions;
    case Packet::Kind::kStep:
      return step(turn, packet.slot);
    case Packet::Kind::kTick:
      break;
  }
  return turn.ledger().tick(now).actions;
}

void WorkerModel::perform(Turn& turn, const Action& action) const {
  const auto settle_handles = [&turn](const ForkId& fork, Handle::Status status) {
    for (Handle& handle : turn.worker().handles) {
      const bool open =
          handle.status == Handle::Status::kWaiting || handle.status == Handle::Status::kUsable;
      if (open && !handle.fork.empty() && public_part(handle.fork) == public_part(fork)) {
        handle.status = status;
      }
    }
  };
  if (const auto* send = std::get_if<Send>(&action)) {
    Packet packet;
    packet.from = turn.ledger().self().rank;
    packet.to = send->to.rank;
    packet.slot = slot_of(subject(send->message).serial);
    packet.message = send->message;
    turn.reaction.sent.push_back(std::move(packet));
  } else if (const auto* confirmed = std::get_if<Confirmed>(&action)) {
    settle_handles(confirmed->fork, Handle::Status::kUsable);
  } else if (const auto* failed = std::get_if<Failed>(&action)) {
    if (!turn.moment.faulty) {
      turn.violate(absl::StrCat("a reference failed without cause: ", failed->status.ToString()));
    }
    settle_handles(failed->fork, Handle::Status::kFailed);
  } else if (const auto* destroy = std::get_if<DestroyValue>(&action)) {
    std::vector<RRefId>& destroyed = turn.worker().destroyed;
    if (std::count(destroyed.begin(), destroyed.end(), destroy->rref) != 0) {
      turn.violate(absl::StrCat("value destroyed twice: ", describe(destroy->rref)));
    }
    insert_sorted(destroyed, destroy->rref);
  }
}

// --- Deliveries ----------------------------------------------------------------------------------

Actions WorkerModel::on_control(Turn& turn, const Packet& packet) const {
  Handled handled =
      turn.ledger().handle(*packet.message, worker_info(packet.from), turn.moment.now);
  // Nobody lies here, so an error needs a cause.
  if (!handled.status.ok() && !turn.moment.faulty && !packet.twin) {
    turn.violate(absl::StrCat(message_name(*packet.message),
                              " refused without cause: ", handled.status.ToString()));
  }
  return std::move(handled.actions);
}

Actions WorkerModel::on_record(Turn& turn, const Packet& packet) const {
  Outcome<Received> outcome = turn.ledger().receive(packet.record, worker_info(packet.from),
                                                    described_test(), turn.moment.now);
  if (!outcome.result.ok()) {
    if (!turn.moment.faulty && !packet.twin) {
      turn.violate(
          absl::StrCat("record refused without cause: ", outcome.result.status().ToString()));
    }
    return std::move(outcome.actions);
  }
  Handle& handle = turn.handle(packet.slot);
  if (handle.status != Handle::Status::kNone) turn.violate("one record was received twice");
  handle.role = outcome.result->role;
  handle.rref = outcome.result->rref;
  handle.fork = outcome.result->fork;
  handle.status = outcome.result->state == Received::State::kUsable ? Handle::Status::kUsable
                                                                    : Handle::Status::kWaiting;
  return std::move(outcome.actions);
}

Actions WorkerModel::on_create(Turn& turn, const Packet& packet) const {
  Handled handled = turn.ledger().on_create(packet.rref, packet.fork, worker_info(packet.from),
                                            described_test(), turn.moment.now);
  if (!handled.status.ok()) {
    if (!turn.moment.faulty && !packet.twin) {
      turn.violate(absl::StrCat("create refused without cause: ", handled.status.ToString()));
    }
    return std::move(handled.actions);
  }
  insert_sorted(turn.worker().created, packet.rref);
  Packet run = packet;
  run.kind = Packet::Kind::kRunCall;
  run.twin = false;
  turn.reaction.sent.push_back(std::move(run));
  return std::move(handled.actions);
}

Actions WorkerModel::run_call(Turn& turn, const Packet& packet) const {
  const bool fails = slot(packet.slot).root == Slot::Root::kCreateFails;
  Handled handled = fails ? turn.ledger().owner_failed(packet.rref, absl::InternalError("no value"))
                          : turn.ledger().owner_fulfilled(packet.rref);
  if (!handled.status.ok()) {
    turn.violate(absl::StrCat("a value could not be set: ", handled.status.ToString()));
  }
  Packet reply = packet;
  reply.kind = Packet::Kind::kCreateReply;
  std::swap(reply.from, reply.to);
  turn.reaction.sent.push_back(std::move(reply));
  return std::move(handled.actions);
}

Actions WorkerModel::finish_create(Turn& turn, const Packet& packet) const {
  const Time now = turn.moment.now;
  if (turn.ledger().is_lost(worker_info(packet.from))) return {};
  Handled handled = slot(packet.slot).root == Slot::Root::kCreateFails
                        ? turn.ledger().create_failed(packet.fork, absl::InternalError("no value"),
                                                      kCallDeadline, now)
                        : turn.ledger().create_succeeded(packet.fork, now);
  return std::move(handled.actions);
}

Packet WorkerModel::given_up(int index) const {
  const int parent = slot(index).parent;
  const int caller = parent >= 0 ? slot(parent).worker : slot(index).worker;
  Packet failure;
  failure.kind = parent >= 0 ? Packet::Kind::kRecordGivenUp : Packet::Kind::kCreateGivenUp;
  failure.from = caller;
  failure.to = caller;
  failure.slot = index;
  failure.fork = ForkId{worker_info(caller).incarnation, serials_before(index) + 2, 0};
  return failure;
}

// --- Program steps -------------------------------------------------------------------------------

bool WorkerModel::can_step(const WorkerState& worker, int index) const {
  if (!worker.alive || slot(index).worker != worker.ledger.self().rank) return false;
  const Handle::Status status = worker.handles[static_cast<std::size_t>(index)].status;
  if (status == Handle::Status::kNone) {
    return slot(index).parent < 0 && slot(index).root != Slot::Root::kNever;
  }
  // A reference may be dropped while it waits: the call that brought it may have ended.
  return status != Handle::Status::kReleased;
}

bool WorkerModel::releases_next(const WorkerState& worker, int index) const {
  const Handle& handle = worker.handles[static_cast<std::size_t>(index)];
  if (!can_step(worker, index) || handle.status == Handle::Status::kNone) return false;
  return handle.status != Handle::Status::kUsable ||
         handle.shared == children_[static_cast<std::size_t>(index)].size();
}

Actions WorkerModel::step(Turn& turn, int index) const {
  if (releases_next(turn.worker(), index)) return release(turn, index);
  return turn.handle(index).status == Handle::Status::kNone ? start(turn, index)
                                                            : share(turn, index);
}

Actions WorkerModel::start(Turn& turn, int index) const {
  const Slot& plan = slot(index);
  Handle& handle = turn.handle(index);
  handle.status = Handle::Status::kUsable;
  LedgerInspector::set_last_serial(turn.ledger(), serials_before(index));
  if (plan.root == Slot::Root::kOwn) {
    handle.role = Role::kOwner;
    handle.rref = turn.ledger().own(ValueState::kReady, described_test());
    insert_sorted(turn.worker().created, handle.rref);
    return {};
  }
  absl::StatusOr<Created> created = turn.ledger().create(worker_info(plan.owner), described_test());
  if (!created.ok()) {
    handle.status = Handle::Status::kReleased;
    return {};
  }
  handle.rref = created->rref;
  handle.fork = created->fork;
  Packet call;
  call.kind = Packet::Kind::kCreateCall;
  call.from = plan.worker;
  call.to = plan.owner;
  call.slot = index;
  call.rref = created->rref;
  call.fork = created->fork;
  turn.reaction.sent.push_back(std::move(call));
  return {};
}

Actions WorkerModel::share(Turn& turn, int index) const {
  Handle& handle = turn.handle(index);
  const int child = children_[static_cast<std::size_t>(index)][handle.shared++];
  const WorkerInfo target = worker_info(slot(child).worker);
  const std::optional<Time> deadline = turn.moment.now + kCallDeadline;
  LedgerInspector::set_last_serial(turn.ledger(), serials_before(child) + 1);
  absl::StatusOr<ForkRecord> record = handle.role == Role::kOwner
                                          ? turn.ledger().share_owned(handle.rref, target, deadline)
                                          : turn.ledger().share_user(handle.fork, target, deadline);
  if (!record.ok()) {
    if (!turn.ledger().is_lost(target)) {
      turn.violate(
          absl::StrCat("a usable reference could not be shared: ", record.status().ToString()));
    }
    return {};
  }
  Packet carrier;
  carrier.kind = Packet::Kind::kRecord;
  carrier.from = slot(index).worker;
  carrier.to = slot(child).worker;
  carrier.slot = child;
  carrier.record = *std::move(record);
  turn.reaction.sent.push_back(std::move(carrier));
  return {};
}

Actions WorkerModel::release(Turn& turn, int index) const {
  Handle& handle = turn.handle(index);
  const bool failed = handle.status == Handle::Status::kFailed;
  const bool usable = handle.status == Handle::Status::kUsable;
  handle.status = Handle::Status::kReleased;
  Handled released = handle.role == Role::kOwner && usable
                         ? turn.ledger().release_owned(handle.rref)
                         : turn.ledger().release_user(handle.fork, turn.moment.now);
  // A failed wait at the owner left no handle behind.
  if (!released.status.ok() && !(failed && handle.role == Role::kOwner)) {
    turn.violate(absl::StrCat("release failed: ", released.status.ToString()));
  }
  return std::move(released.actions);
}

}  // namespace sinew::internal::ledger
