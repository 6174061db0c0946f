#include "sinew/tests/rref/support/explorer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rref/internal/ledger.h"
#include "sinew/tests/rref/support/ledger_inspector.h"

namespace sinew::internal::ledger {

namespace {

using std::chrono::seconds;

constexpr Time kDeadline = seconds(10);  // of every call, on a clock that starts at 0
constexpr Time kStep = seconds(100);     // past deadlines, leases, tombstones and parking

WorkerInfo worker_info(int worker) {
  const std::uint64_t number = static_cast<std::uint64_t>(worker) + 1;
  return WorkerInfo{absl::StrCat("w", worker), worker, Incarnation{number}};
}

int worker_index(const WorkerInfo& worker) { return worker.rank; }

LedgerOptions explorer_options() {
  LedgerOptions options;
  // Secrets that do not depend on the path: states that differ in names only are one state.
  options.draw_secret = [] { return std::uint64_t{42}; };
  options.make_token = test_token;
  return options;
}

/// Something on its way to a worker. Immutable and shared between states.
struct Packet {
  enum class Kind : std::uint8_t {
    kControl,
    kRecord,         // a call or result with one reference in it
    kCreateCall,     //
    kRunCall,        // at the owner: the creating call runs; not a message
    kCreateReply,    //
    kCreateGivenUp,  // at the creator: its call has failed; not a message
    kRecordGivenUp,  // at the giver: the call that carried the record has failed; not a message
    kLost,           // `from` is lost; not a message
  };
  Kind kind = Kind::kControl;
  int from = 0;
  int to = 0;
  int slot = -1;
  bool twin = false;  // one of two copies of one message
  std::optional<LedgerMessage> message;
  ForkRecord record;
  RRefId rref;
  ForkId fork;
  std::string key;  // all of the above

  bool is_message() const {
    return kind == Kind::kControl || kind == Kind::kRecord || kind == Kind::kCreateCall ||
           kind == Kind::kCreateReply;
  }
  bool is_call() const { return is_message() && kind != Kind::kControl; }
};

using PacketPtr = std::shared_ptr<const Packet>;

PacketPtr seal(Packet packet) {
  packet.key.clear();
  packet.key.push_back(static_cast<char>(packet.kind));
  packet.key.push_back(static_cast<char>(packet.from));
  packet.key.push_back(static_cast<char>(packet.to));
  packet.key.push_back(static_cast<char>(packet.slot));
  packet.key.push_back(static_cast<char>(packet.twin));
  if (packet.message.has_value()) put(packet.key, *packet.message);
  if (packet.kind == Packet::Kind::kRecord) put(packet.key, packet.record);
  put(packet.key, packet.rref);
  put(packet.key, packet.fork);
  return std::make_shared<const Packet>(std::move(packet));
}

/// Where a slot's handle is in its life.
struct Handle {
  enum class Status : std::uint8_t { kNone, kWaiting, kUsable, kFailed, kReleased };
  Status status = Status::kNone;
  Role role = Role::kUser;
  std::uint8_t shared = 0;  // children served
  RRefId rref;
  ForkId fork;
};

struct WorkerState {
  Ledger ledger;
  bool alive = true;
  std::vector<Handle> handles;    // by slot; of other workers' slots kNone
  std::vector<RRefId> created;    // entries that were made here
  std::vector<RRefId> destroyed;  // and ended
  std::uint64_t hash = 0;

  explicit WorkerState(Ledger made) : ledger(std::move(made)) {}

  void rehash() {
    std::string text = LedgerInspector::fingerprint(ledger);
    text.push_back(alive ? 1 : 0);
    for (const Handle& handle : handles) {
      text.push_back(static_cast<char>(handle.status));
      text.push_back(static_cast<char>(handle.role));
      text.push_back(static_cast<char>(handle.shared));
      put(text, handle.fork);
    }
    for (const auto* list : {&created, &destroyed}) {
      put(text, static_cast<std::uint64_t>(list->size()));
      for (const RRefId& rref : *list) put(text, rref);
    }
    hash = absl::HashOf(text);
  }
};

struct State {
  std::vector<std::shared_ptr<const WorkerState>> workers;
  std::vector<PacketPtr> net;  // sorted by key
  Faults left;
  Time now{0};
  bool faulty = false;  // something but a duplicate happened: references may fail
};

class Explorer {
 public:
  Explorer(const Scenario& scenario, const Faults& faults) : scenario_(scenario) {
    children_.resize(scenario.slots.size());
    for (std::size_t i = 0; i < scenario.slots.size(); ++i) {
      if (scenario.slots[i].parent >= 0) {
        children_[static_cast<std::size_t>(scenario.slots[i].parent)].push_back(
            static_cast<int>(i));
      }
    }
    State start;
    start.left = faults;
    for (int w = 0; w < scenario.workers; ++w) {
      WorkerState made(Ledger(worker_info(w), explorer_options()));
      made.handles.resize(scenario.slots.size());
      made.rehash();
      start.workers.push_back(std::make_shared<const WorkerState>(std::move(made)));
    }
    for (std::size_t i = 0; i < scenario.slots.size(); ++i) {
      if (scenario.slots[i].root == Slot::Root::kCreateFails) start.faulty = true;
    }
    visit(start);
    if (!result_.violation.empty()) {
      result_.violation = absl::StrCat(result_.violation, "\n  in ", to_text(scenario),
                                       "\n  after: ", absl::StrJoin(violating_trace_, "; "));
    }
  }

  Exploration result() const { return result_; }

 private:
  // --- Search ---

  bool stopped() const { return !result_.violation.empty(); }

  void violate(std::string what) {
    if (stopped()) return;
    result_.violation = std::move(what);
    violating_trace_ = trace_;
  }

  bool first_visit(const State& state) {
    std::string text;
    for (const auto& worker : state.workers) put(text, worker->hash);
    for (const PacketPtr& packet : state.net) put(text, packet->key);
    put(text, static_cast<std::uint64_t>(state.left.drops));
    put(text, static_cast<std::uint64_t>(state.left.duplicates));
    put(text, static_cast<std::uint64_t>(state.left.crashes));
    put(text, static_cast<std::uint64_t>(state.now.count()));
    return visited_.insert(absl::HashOf(text)).second;
  }

  void visit(const State& state) {
    if (stopped() || !first_visit(state)) return;
    ++result_.states;
    judge(state);
    if (visit_without_effect(state)) return;
    bool idle = true;
    for (std::size_t i = 0; i < state.net.size() && !stopped(); ++i) {
      // Equal packets lead to equal states.
      if (i > 0 && state.net[i]->key == state.net[i - 1]->key) continue;
      idle = false;
      follow(state, "deliver", *state.net[i], [&](State& next) {
        const PacketPtr packet = take(next, i);
        deliver(next, *packet);
      });
      visit_packet_faults(state, i);
    }
    for (std::size_t i = 0; i < scenario_.slots.size() && !stopped(); ++i) {
      if (!can_step(state, i)) continue;
      idle = false;
      follow(state, absl::StrCat("slot ", i, " steps"), [&](State& next) { step(next, i); });
    }
    visit_worker_faults(state);
    if (idle && !stopped()) {
      ++result_.endings;
      close(state);
    }
  }

  /// A packet that changes nothing, now and whenever it may come, commutes with all that can
  /// happen: its delivery alone stands for all orders. It is delivered all the same, to see that it
  /// changes nothing.
  bool visit_without_effect(const State& state) {
    for (std::size_t i = 0; i < state.net.size() && !stopped(); ++i) {
      if (!without_effect(state, *state.net[i])) continue;
      follow(state, "deliver idle", *state.net[i], [&](State& next) {
        const PacketPtr packet = take(next, i);
        deliver(next, *packet);
      });
      return true;
    }
    return false;
  }

  static bool without_effect(const State& state, const Packet& packet) {
    const Ledger& ledger = state.workers[static_cast<std::size_t>(packet.to)]->ledger;
    if (packet.is_message() && ledger.is_lost(worker_info(packet.from))) return true;
    if (packet.kind == Packet::Kind::kCreateGivenUp) {
      return !LedgerInspector::creating(ledger, packet.fork);
    }
    if (packet.kind == Packet::Kind::kRecordGivenUp) {
      return !LedgerInspector::awaits_receiver(ledger, packet.fork);
    }
    if (!packet.message.has_value()) return false;
    if (const auto* done = std::get_if<ChildDone>(&*packet.message)) {
      return !LedgerInspector::awaits_receiver(ledger, done->child);
    }
    if (const auto* added = std::get_if<ForkAdded>(&*packet.message)) {
      return !LedgerInspector::holds(ledger, added->child);
    }
    if (const auto* refused = std::get_if<ForkRefused>(&*packet.message)) {
      return !LedgerInspector::holds(ledger, refused->child);
    }
    return false;
  }

  void visit_packet_faults(const State& state, std::size_t i) {
    const Packet& packet = *state.net[i];
    if (state.left.drops > 0 && packet.is_call() && !packet.twin) {
      follow(state, "drop", packet, [&](State& next) {
        --next.left.drops;
        next.faulty = true;
        give_up(next, *take(next, i));
      });
      if (packet.kind != Packet::Kind::kCreateReply) {
        follow(state, "give up", packet, [&](State& next) {
          --next.left.drops;
          next.faulty = true;
          give_up(next, packet);
        });
      }
    }
    if (state.left.duplicates > 0 && packet.is_message()) {
      follow(state, "duplicate", packet, [&](State& next) {
        --next.left.duplicates;
        Packet copy = *take(next, i);
        copy.twin = true;
        const PacketPtr twin = seal(copy);
        send(next, twin);
        send(next, twin);
      });
    }
  }

  void visit_worker_faults(const State& state) {
    if (state.left.crashes > 0) {
      for (int w = 0; w < scenario_.workers && !stopped(); ++w) {
        if (!state.workers[static_cast<std::size_t>(w)]->alive) continue;
        follow(state, absl::StrCat("w", w, " crashes"), [&](State& next) { crash(next, w); });
      }
    }
    // The channel's receiver drops a second copy that is older than a tombstone; here there is no
    // channel.
    const bool twins = std::any_of(state.net.begin(), state.net.end(),
                                   [](const PacketPtr& packet) { return packet->twin; });
    if (state.left.advances > 0 && !twins && !stopped()) {
      follow(state, "time passes", [&](State& next) {
        --next.left.advances;
        next.faulty = true;
        advance(next);
      });
    }
  }

  template <class Change>
  void follow(const State& state, const char* what, const Packet& packet, Change change) {
    follow(state, absl::StrCat(what, " ", name(packet)), change);
  }

  template <class Change>
  void follow(const State& state, std::string event, Change change) {
    if (stopped()) return;
    ++result_.transitions;
    trace_.push_back(std::move(event));
    State next = state;
    change(next);
    visit(next);
    trace_.pop_back();
  }

  static std::string name(const Packet& packet) {
    static constexpr const char* kNames[] = {
        "", "record", "create", "run", "created", "create given up", "record given up", "loss"};
    const std::string kind = packet.message.has_value()
                                 ? message_name(*packet.message)
                                 : kNames[static_cast<std::size_t>(packet.kind)];
    return absl::StrCat(kind, packet.slot >= 0 ? absl::StrCat("#", packet.slot) : "", " w",
                        packet.from, ">w", packet.to);
  }

  // --- Changes of a state ---

  static PacketPtr take(State& state, std::size_t i) {
    PacketPtr packet = state.net[i];
    state.net.erase(state.net.begin() + static_cast<std::ptrdiff_t>(i));
    return packet;
  }

  void send(State& state, PacketPtr packet) {
    if (!state.workers[static_cast<std::size_t>(packet->to)]->alive) return;
    auto place =
        std::lower_bound(state.net.begin(), state.net.end(), packet,
                         [](const PacketPtr& a, const PacketPtr& b) { return a->key < b->key; });
    state.net.insert(place, std::move(packet));
  }

  /// Runs `change` on a copy of one worker, then does what its ledger asks for.
  template <class Change>
  void with_worker(State& state, int worker, Change change) {
    auto copy = std::make_shared<WorkerState>(*state.workers[static_cast<std::size_t>(worker)]);
    std::vector<PacketPtr> out;
    Actions actions = change(*copy, out);
    for (const Action& action : actions) perform(state, *copy, worker, action, out);
    copy->rehash();
    state.workers[static_cast<std::size_t>(worker)] = std::move(copy);
    for (PacketPtr& packet : out) send(state, std::move(packet));
  }

  void perform(const State& state, WorkerState& worker, int index, const Action& action,
               std::vector<PacketPtr>& out) {
    if (const auto* message = std::get_if<Send>(&action)) {
      Packet packet;
      packet.from = index;
      packet.to = worker_index(message->to);
      packet.message = message->message;
      out.push_back(seal(std::move(packet)));
    } else if (const auto* confirmed = std::get_if<Confirmed>(&action)) {
      settle_handle(worker, confirmed->fork, Handle::Status::kUsable);
    } else if (const auto* failed = std::get_if<Failed>(&action)) {
      if (!state.faulty) {
        violate(absl::StrCat("a reference failed without cause: ", failed->status.ToString()));
      }
      settle_handle(worker, failed->fork, Handle::Status::kFailed);
    } else if (const auto* destroy = std::get_if<DestroyValue>(&action)) {
      if (std::count(worker.destroyed.begin(), worker.destroyed.end(), destroy->rref) != 0) {
        violate(absl::StrCat("value destroyed twice: ", describe(destroy->rref)));
      }
      worker.destroyed.push_back(destroy->rref);
    }
  }

  static void settle_handle(WorkerState& worker, const ForkId& fork, Handle::Status status) {
    for (Handle& handle : worker.handles) {
      const bool open =
          handle.status == Handle::Status::kWaiting || handle.status == Handle::Status::kUsable;
      if (open && !handle.fork.empty() && public_part(handle.fork) == public_part(fork)) {
        handle.status = status;
      }
    }
  }

  void crash(State& state, int worker) {
    --state.left.crashes;
    state.faulty = true;
    WorkerState dead(Ledger(worker_info(worker), explorer_options()));
    dead.alive = false;
    dead.handles.resize(scenario_.slots.size());
    dead.rehash();
    state.workers[static_cast<std::size_t>(worker)] =
        std::make_shared<const WorkerState>(std::move(dead));
    state.net.erase(std::remove_if(state.net.begin(), state.net.end(),
                                   [&](const PacketPtr& packet) { return packet->to == worker; }),
                    state.net.end());
    for (int other = 0; other < scenario_.workers; ++other) {
      Packet loss;
      loss.kind = Packet::Kind::kLost;
      loss.from = worker;
      loss.to = other;
      send(state, seal(std::move(loss)));
    }
  }

  /// The sender of a call learns that it failed, whether or not the call arrived.
  void give_up(State& state, const Packet& packet) {
    Packet failure;
    failure.slot = packet.slot;
    failure.fork = packet.kind == Packet::Kind::kRecord ? packet.record.fork : packet.fork;
    failure.kind = packet.kind == Packet::Kind::kRecord ? Packet::Kind::kRecordGivenUp
                                                        : Packet::Kind::kCreateGivenUp;
    failure.to = packet.kind == Packet::Kind::kCreateReply ? packet.to : packet.from;
    failure.from = failure.to;
    send(state, seal(std::move(failure)));
  }

  void advance(State& state) {
    state.now += kStep;
    // Calls and replies whose deadline has passed are not looked at any more.
    for (std::size_t i = 0; i < state.net.size();) {
      if (state.net[i]->is_call()) {
        give_up(state, *take(state, i));
        i = 0;
      } else {
        ++i;
      }
    }
    for (int w = 0; w < scenario_.workers; ++w) {
      if (!state.workers[static_cast<std::size_t>(w)]->alive) continue;
      with_worker(state, w, [&](WorkerState& worker, std::vector<PacketPtr>&) {
        return worker.ledger.tick(state.now).actions;
      });
    }
  }

  // --- Deliveries ---

  void deliver(State& state, const Packet& packet) {
    with_worker(state, packet.to, [&](WorkerState& worker, std::vector<PacketPtr>& out) {
      switch (packet.kind) {
        case Packet::Kind::kControl:
          return deliver_control(state, worker, packet);
        case Packet::Kind::kRecord:
          return deliver_record(state, worker, packet);
        case Packet::Kind::kCreateCall:
          return deliver_create(state, worker, packet, out);
        case Packet::Kind::kRunCall:
          return run_call(worker, packet, out);
        case Packet::Kind::kCreateReply:
          return finish_create(state, worker, packet);
        case Packet::Kind::kCreateGivenUp:
          return worker.ledger
              .create_failed(packet.fork, absl::DeadlineExceededError("no answer"), kDeadline,
                             state.now)
              .actions;
        case Packet::Kind::kRecordGivenUp:
          return worker.ledger.carrier_failed(packet.fork, state.now).actions;
        case Packet::Kind::kLost:
          break;
      }
      return worker.ledger.worker_lost(worker_info(packet.from), state.now).actions;
    });
  }

  Actions deliver_control(const State& state, WorkerState& worker, const Packet& packet) {
    Handled handled = worker.ledger.handle(*packet.message, worker_info(packet.from), state.now);
    // Nobody lies here, so an error needs a cause.
    if (!handled.status.ok() && !state.faulty && !packet.twin) {
      violate(absl::StrCat(message_name(*packet.message),
                           " refused without cause: ", handled.status.ToString()));
    }
    return std::move(handled.actions);
  }

  Actions deliver_record(const State& state, WorkerState& worker, const Packet& packet) {
    Outcome<Received> outcome = worker.ledger.receive(packet.record, worker_info(packet.from),
                                                      Description{"T", "test"}, state.now);
    if (!outcome.result.ok()) {
      if (!state.faulty && !packet.twin) {
        violate(absl::StrCat("record refused without cause: ", outcome.result.status().ToString()));
      }
      return std::move(outcome.actions);
    }
    Handle& handle = worker.handles[static_cast<std::size_t>(packet.slot)];
    if (handle.status != Handle::Status::kNone) violate("one record was received twice");
    handle.role = outcome.result->role;
    handle.rref = outcome.result->rref;
    handle.fork = outcome.result->fork;
    handle.status = outcome.result->state == Received::State::kUsable ? Handle::Status::kUsable
                                                                      : Handle::Status::kWaiting;
    return std::move(outcome.actions);
  }

  Actions deliver_create(const State& state, WorkerState& worker, const Packet& packet,
                         std::vector<PacketPtr>& out) {
    Handled handled = worker.ledger.on_create(packet.rref, packet.fork, worker_info(packet.from),
                                              Description{"T", "test"}, state.now);
    if (!handled.status.ok()) {
      if (!state.faulty && !packet.twin) {
        violate(absl::StrCat("create refused without cause: ", handled.status.ToString()));
      }
      return std::move(handled.actions);
    }
    worker.created.push_back(packet.rref);
    Packet run = packet;
    run.kind = Packet::Kind::kRunCall;
    run.from = packet.from;
    run.twin = false;
    out.push_back(seal(std::move(run)));
    return std::move(handled.actions);
  }

  Actions run_call(WorkerState& worker, const Packet& packet, std::vector<PacketPtr>& out) {
    const bool fails =
        scenario_.slots[static_cast<std::size_t>(packet.slot)].root == Slot::Root::kCreateFails;
    Handled handled = fails
                          ? worker.ledger.owner_failed(packet.rref, absl::InternalError("no value"))
                          : worker.ledger.owner_fulfilled(packet.rref);
    if (!handled.status.ok()) {
      violate(absl::StrCat("a value could not be set: ", handled.status.ToString()));
    }
    Packet reply = packet;
    reply.kind = Packet::Kind::kCreateReply;
    std::swap(reply.from, reply.to);
    out.push_back(seal(std::move(reply)));
    return std::move(handled.actions);
  }

  Actions finish_create(const State& state, WorkerState& worker, const Packet& packet) {
    const bool failed =
        scenario_.slots[static_cast<std::size_t>(packet.slot)].root == Slot::Root::kCreateFails;
    if (worker.ledger.is_lost(worker_info(packet.from))) return {};
    return failed ? worker.ledger
                        .create_failed(packet.fork, absl::InternalError("no value"), kDeadline,
                                       state.now)
                        .actions
                  : worker.ledger.create_succeeded(packet.fork, state.now).actions;
  }

  // --- Program steps ---

  bool can_step(const State& state, std::size_t slot) const {
    const Slot& plan = scenario_.slots[slot];
    const WorkerState& worker = *state.workers[static_cast<std::size_t>(plan.worker)];
    if (!worker.alive) return false;
    const Handle::Status status = worker.handles[slot].status;
    if (status == Handle::Status::kNone) return plan.parent < 0;
    // A reference may be dropped while it waits: the call that brought it may have ended.
    return status != Handle::Status::kReleased;
  }

  void step(State& state, std::size_t slot) {
    const Slot& plan = scenario_.slots[slot];
    with_worker(state, plan.worker, [&](WorkerState& worker, std::vector<PacketPtr>& out) {
      Handle& handle = worker.handles[slot];
      if (handle.status == Handle::Status::kNone) return start(worker, slot, out);
      if (handle.status == Handle::Status::kUsable && handle.shared < children_[slot].size()) {
        return share(state, worker, slot, out);
      }
      const bool failed = handle.status == Handle::Status::kFailed;
      const bool usable = handle.status == Handle::Status::kUsable;
      handle.status = Handle::Status::kReleased;
      Handled released = handle.role == Role::kOwner && usable
                             ? worker.ledger.release_owned(handle.rref)
                             : worker.ledger.release_user(handle.fork, state.now);
      // A failed wait at the owner left no handle behind.
      if (!released.status.ok() && !(failed && handle.role == Role::kOwner)) {
        violate(absl::StrCat("release failed: ", released.status.ToString()));
      }
      return std::move(released.actions);
    });
  }

  Actions start(WorkerState& worker, std::size_t slot, std::vector<PacketPtr>& out) {
    const Slot& plan = scenario_.slots[slot];
    Handle& handle = worker.handles[slot];
    handle.status = Handle::Status::kUsable;
    if (plan.root == Slot::Root::kOwn) {
      handle.role = Role::kOwner;
      handle.rref = worker.ledger.own(ValueState::kReady, Description{"T", "test"});
      worker.created.push_back(handle.rref);
      return {};
    }
    absl::StatusOr<Created> created =
        worker.ledger.create(worker_info(plan.owner), Description{"T", "test"});
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
    call.slot = static_cast<int>(slot);
    call.rref = created->rref;
    call.fork = created->fork;
    out.push_back(seal(std::move(call)));
    return {};
  }

  Actions share(const State& state, WorkerState& worker, std::size_t slot,
                std::vector<PacketPtr>& out) {
    Handle& handle = worker.handles[slot];
    const int child = children_[slot][handle.shared++];
    const int target = scenario_.slots[static_cast<std::size_t>(child)].worker;
    const std::optional<Time> deadline = state.now + kDeadline;
    absl::StatusOr<ForkRecord> record =
        handle.role == Role::kOwner
            ? worker.ledger.share_owned(handle.rref, worker_info(target), deadline)
            : worker.ledger.share_user(handle.fork, worker_info(target), deadline);
    if (!record.ok()) {
      if (!worker.ledger.is_lost(worker_info(target))) {
        violate(
            absl::StrCat("a usable reference could not be shared: ", record.status().ToString()));
      }
      return {};
    }
    Packet carrier;
    carrier.kind = Packet::Kind::kRecord;
    carrier.from = scenario_.slots[slot].worker;
    carrier.to = target;
    carrier.slot = child;
    carrier.record = *std::move(record);
    out.push_back(seal(std::move(carrier)));
    return {};
  }

  // --- Invariants ---

  bool in_touch(const State& state, int a, int b) const {
    const WorkerState& one = *state.workers[static_cast<std::size_t>(a)];
    const WorkerState& two = *state.workers[static_cast<std::size_t>(b)];
    return one.alive && two.alive && !one.ledger.is_lost(worker_info(b)) &&
           !two.ledger.is_lost(worker_info(a));
  }

  void judge(const State& state) {
    for (int w = 0; w < scenario_.workers; ++w) {
      const WorkerState& worker = *state.workers[static_cast<std::size_t>(w)];
      if (!worker.alive) continue;
      for (const auto& held : LedgerInspector::held_forks(worker.ledger)) {
        const int owner = worker_index(held.owner);
        if (held.failed || held.state != UserState::kListed || !in_touch(state, w, owner)) continue;
        if (!LedgerInspector::lists(state.workers[static_cast<std::size_t>(owner)]->ledger,
                                    held.rref, held.fork, worker_info(w))) {
          violate(absl::StrCat("w", w, " holds a confirmed ", describe(held.fork),
                               " that its owner does not list"));
        }
      }
      for (const Handle& handle : worker.handles) {
        if (handle.status == Handle::Status::kUsable && handle.role == Role::kOwner &&
            !LedgerInspector::owns(worker.ledger, handle.rref)) {
          violate(absl::StrCat("w", w, " has a handle of a destroyed value"));
        }
      }
    }
    for (const PacketPtr& packet : state.net) judge_record(state, *packet);
  }

  /// A value lives while a message that carries a reference to it may still be accepted.
  void judge_record(const State& state, const Packet& packet) {
    if (packet.kind != Packet::Kind::kRecord || packet.twin) return;
    const int owner = worker_index(packet.record.owner);
    if (!in_touch(state, packet.from, packet.to) || !in_touch(state, packet.from, owner) ||
        !in_touch(state, packet.to, owner)) {
      return;
    }
    const WorkerState& receiver = *state.workers[static_cast<std::size_t>(packet.to)];
    if (LedgerInspector::refuses(receiver.ledger, packet.record.fork)) return;
    const WorkerState& holder = *state.workers[static_cast<std::size_t>(owner)];
    if (std::count(holder.destroyed.begin(), holder.destroyed.end(), packet.record.rref) != 0) {
      violate(
          absl::StrCat("value destroyed while a message carries ", describe(packet.record.rref)));
    }
  }

  /// Nothing is left to do but to let time pass: every reference must have completed, and every
  /// table empty.
  void close(State state) {
    for (int round = 0; round < 20; ++round) {
      while (!state.net.empty() && !stopped()) {
        const PacketPtr packet = take(state, 0);
        deliver(state, *packet);
        for (std::size_t i = 0; i < scenario_.slots.size(); ++i) {
          const Slot& plan = scenario_.slots[i];
          const Handle::Status status =
              state.workers[static_cast<std::size_t>(plan.worker)]->handles[i].status;
          if (plan.parent >= 0 && status != Handle::Status::kWaiting && can_step(state, i)) {
            step(state, i);
          }
        }
      }
      state.faulty = true;
      advance(state);
    }
    for (int w = 0; w < scenario_.workers; ++w) {
      const WorkerState& worker = *state.workers[static_cast<std::size_t>(w)];
      if (!worker.alive) continue;
      for (std::size_t i = 0; i < worker.handles.size(); ++i) {
        if (worker.handles[i].status == Handle::Status::kWaiting) {
          violate(absl::StrCat("the reference of slot ", i, " neither worked nor failed"));
        }
      }
      const LedgerCounters left = worker.ledger.counters();
      if (!left.quiescent() || left.tombstones != 0) {
        std::string report;
        for (const LiveReference& live : worker.ledger.live_references()) {
          absl::StrAppend(&report, "\n    ", to_text(live));
        }
        violate(absl::StrCat("w", w, " keeps entries when all is quiet:", report));
      }
      if (worker.created.size() != worker.destroyed.size()) {
        violate(absl::StrCat("w", w, " made ", worker.created.size(), " values and destroyed ",
                             worker.destroyed.size()));
      }
    }
  }

  const Scenario& scenario_;
  std::vector<std::vector<int>> children_;
  absl::flat_hash_set<std::uint64_t> visited_;
  std::vector<std::string> trace_;
  std::vector<std::string> violating_trace_;
  Exploration result_;
};

// --- Scenarios -----------------------------------------------------------------------------------

void grow(Scenario scenario, const std::vector<int>& trees, std::size_t tree, int forks_left,
          int used_workers, std::size_t tree_start, std::vector<Scenario>& all);

void start_tree(const Scenario& scenario, const std::vector<int>& trees, std::size_t tree,
                int used_workers, std::vector<Scenario>& all) {
  if (tree == trees.size()) {
    all.push_back(scenario);
    return;
  }
  const int limit = scenario.workers;
  for (int owner = 0; owner < std::min(used_workers + 1, limit); ++owner) {
    const int used = std::max(used_workers, owner + 1);
    Scenario own = scenario;
    own.slots.push_back(Slot{owner, -1, Slot::Root::kOwn, owner});
    grow(own, trees, tree, trees[tree], used, scenario.slots.size(), all);
    for (int creator = 0; creator < std::min(used + 1, limit); ++creator) {
      if (creator == owner) continue;
      for (const auto root : {Slot::Root::kCreate, Slot::Root::kCreateFails}) {
        Scenario created = scenario;
        created.slots.push_back(Slot{creator, -1, root, owner});
        grow(created, trees, tree, trees[tree] - 1, std::max(used, creator + 1),
             scenario.slots.size(), all);
      }
    }
  }
}

void grow(Scenario scenario, const std::vector<int>& trees, std::size_t tree, int forks_left,
          int used_workers, std::size_t tree_start, std::vector<Scenario>& all) {
  if (forks_left == 0) {
    start_tree(scenario, trees, tree + 1, used_workers, all);
    return;
  }
  // A child is hung under the last parent or a later one: each tree comes once.
  const int last = scenario.slots.back().parent;
  const std::size_t first = std::max(tree_start, static_cast<std::size_t>(std::max(last, 0)));
  for (std::size_t parent = first; parent < scenario.slots.size(); ++parent) {
    for (int worker = 0; worker < std::min(used_workers + 1, scenario.workers); ++worker) {
      Scenario next = scenario;
      next.slots.push_back(Slot{worker, static_cast<int>(parent), Slot::Root::kOwn, 0});
      grow(next, trees, tree, forks_left - 1, std::max(used_workers, worker + 1), tree_start, all);
    }
  }
}

}  // namespace

std::vector<Scenario> all_scenarios(const std::vector<int>& trees, int workers) {
  std::vector<Scenario> all;
  Scenario empty;
  empty.workers = workers;
  start_tree(empty, trees, 0, 0, all);
  return all;
}

std::string to_text(const Scenario& scenario) {
  std::string text = absl::StrCat(scenario.workers, " workers:");
  for (std::size_t i = 0; i < scenario.slots.size(); ++i) {
    const Slot& slot = scenario.slots[i];
    absl::StrAppend(&text, i == 0 ? " " : ", ", "slot ", i, " on w", slot.worker);
    if (slot.parent >= 0) {
      absl::StrAppend(&text, " from slot ", slot.parent);
    } else if (slot.root == Slot::Root::kOwn) {
      absl::StrAppend(&text, " its own value");
    } else {
      absl::StrAppend(&text,
                      slot.root == Slot::Root::kCreate ? " creates on w" : " fails to create on w",
                      slot.owner);
    }
  }
  return text;
}

Exploration explore(const Scenario& scenario, const Faults& faults) {
  return Explorer(scenario, faults).result();
}

}  // namespace sinew::internal::ledger
