#include "sinew/tests/rref/support/simulation.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/outbox.h"
#include "sinew/rref/internal/ledger.h"
#include "sinew/tests/rref/support/ledger_inspector.h"

namespace sinew::internal::ledger {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time kLease = seconds(15);
constexpr Time kBeat = seconds(3);
constexpr Time kTick = seconds(1);
constexpr Time kProgramEnds = seconds(70);
constexpr Time kAllQuiet = seconds(230);

/// SplitMix64: the same numbers on every platform, unlike the standard distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
  bool chance(int percent) { return below(100) < static_cast<std::size_t>(percent); }
  Time between(Time low, Time high) {
    return low + Time(static_cast<std::int64_t>(
                     next() % static_cast<std::uint64_t>((high - low).count() + 1)));
  }

 private:
  std::uint64_t state_;
};

/// One local handle in a simulated program.
struct Handle {
  Role role = Role::kUser;
  RRefId rref;
  ForkId fork;
  bool waiting = false;  // for Confirmed or Failed
  bool failed = false;
  int uses = 0;  // under way: the handle must stay
};

struct Link {
  Outbox<LedgerMessage> outbox;
  Inbox inbox;
  Time last_answered_beat{0};  // of the peer, by us
  Time last_proven{0};         // when we sent the last beat that the peer answered

  Link(Incarnation peer, Time now) : inbox(peer), last_answered_beat(now), last_proven(now) {}
};

/// One process of a worker.
struct Node {
  WorkerInfo info;
  bool alive = true;
  bool leaving = false;
  Ledger ledger;
  std::map<int, Link> links;      // by node number of the peer
  std::map<int, Handle> handles;  // by handle number
  std::map<RRefId, std::uint64_t> values;
  std::set<RRefId> entries;  // made here and not destroyed yet

  Node(WorkerInfo who, LedgerOptions options)
      : info(who), ledger(std::move(who), std::move(options)) {}
};

struct Call {
  int from = -1;
  int to = -1;
  Time deadline{0};
  bool open = true;  // the caller still waits
  std::vector<ForkId> carried;
};

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed) : random_(seed * 2 + 1) {
    report_.seed = seed;
    names_ = 3 + static_cast<int>(random_.below(2));
    drop_percent_ = static_cast<int>(random_.below(4)) * 6;
    duplicate_percent_ = static_cast<int>(random_.below(3)) * 8;
    slow_percent_ = static_cast<int>(random_.below(3)) * 5;
    for (int name = 0; name < names_; ++name) start_node(name);
    plan_faults();
    const std::size_t steps = 20 + random_.below(60);
    for (std::size_t i = 0; i < steps; ++i) {
      at(random_.between(Time(0), kProgramEnds), [this] { program_step(); });
    }
    at(kProgramEnds, [this] { wind_down(); });
  }

  SimulationReport run() {
    while (!queue_.empty() && report_.violation.empty()) {
      Event event = queue_.top();
      queue_.pop();
      if (event.time > kAllQuiet) break;
      now_ = event.time;
      ++report_.events;
      (*event.what)();
    }
    if (report_.violation.empty()) judge_the_end();
    return report_;
  }

 private:
  // --- Virtual time and network ---

  struct Event {
    Time time;
    std::uint64_t order;
    std::shared_ptr<std::function<void()>> what;
    bool operator<(const Event& other) const {
      return std::tie(other.time, other.order) < std::tie(time, order);
    }
  };

  void at(Time time, std::function<void()> what) {
    queue_.push(Event{time, ++order_, std::make_shared<std::function<void()>>(std::move(what))});
  }

  void violate(const std::string& what) {
    if (!report_.violation.empty()) return;
    report_.violation = absl::StrCat(what, " (at ", now_.count() / 1000000, " ms)");
  }

  Node& node(int number) { return *nodes_[static_cast<std::size_t>(number)]; }

  bool cut(int from, int to) const {
    auto found = cuts_.find({from, to});
    return found != cuts_.end() && found->second > now_;
  }

  /// Hands `arrive` to a live receiver, some time later, perhaps twice, perhaps never. Returns when
  /// the last copy arrives, or nothing.
  std::optional<Time> transmit(int from, int to, const std::function<void()>& arrive) {
    if (cut(from, to) || (!healed_ && random_.chance(drop_percent_))) return std::nullopt;
    const int copies = !healed_ && random_.chance(duplicate_percent_) ? 2 : 1;
    Time last{0};
    for (int copy = 0; copy < copies; ++copy) {
      const bool slow = !healed_ && random_.chance(slow_percent_);
      const Time delay = slow ? random_.between(milliseconds(1), seconds(4))
                              : random_.between(milliseconds(1), milliseconds(60));
      last = std::max(last, now_ + delay);
      at(now_ + delay, [this, to, arrive] {
        if (node(to).alive) arrive();
      });
    }
    return last;
  }

  // --- Processes, leases ---

  int start_node(int name) {
    const int number = static_cast<int>(nodes_.size());
    // The same name and rank come back with a new incarnation.
    WorkerInfo info{absl::StrCat("n", name), name,
                    Incarnation{static_cast<std::uint64_t>(number) + 1}};
    LedgerOptions options;
    options.lease = kLease;
    options.make_token = test_token;
    options.draw_secret = [this] { return random_.next(); };
    nodes_.push_back(std::make_unique<Node>(info, options));
    for (int other = 0; other < number; ++other) {
      if (!node(other).alive) continue;
      node(other).links.emplace(number, Link(info.incarnation, now_));
      node(number).links.emplace(other, Link(node(other).info.incarnation, now_));
    }
    at(now_ + random_.between(Time(0), kBeat), [this, number] { beat(number); });
    at(now_ + random_.between(Time(0), kTick), [this, number] { tick(number); });
    return number;
  }

  void plan_faults() {
    const std::size_t partitions = random_.below(3);
    for (std::size_t i = 0; i < partitions; ++i) {
      at(random_.between(seconds(1), kProgramEnds), [this] { partition(); });
    }
    const std::size_t crashes = random_.below(3);
    for (std::size_t i = 0; i < crashes; ++i) {
      at(random_.between(seconds(1), kProgramEnds), [this] { crash(); });
    }
    if (random_.chance(25)) {
      at(random_.between(seconds(10), kProgramEnds), [this] { begin_leave(); });
    }
  }

  void partition() {
    const int a = some_node();
    const int b = some_node();
    if (a < 0 || b < 0 || a == b) return;
    const Time end = now_ + random_.between(milliseconds(200), seconds(40));
    cuts_[{a, b}] = end;
    if (random_.chance(70)) cuts_[{b, a}] = end;
  }

  void crash() {
    const int number = some_node();
    if (number < 0) return;
    ++report_.crashes;
    Node& dead = node(number);
    dead.alive = false;
    dead.links.clear();
    const int name = dead.info.rank;
    if (random_.chance(70)) {
      at(now_ + random_.between(milliseconds(10), seconds(20)), [this, name] {
        if (now_ < kProgramEnds) start_node(name);
      });
    }
  }

  int some_node() {
    std::vector<int> alive;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i]->alive && !nodes_[i]->leaving) alive.push_back(static_cast<int>(i));
    }
    return alive.empty() ? -1 : alive[random_.below(alive.size())];
  }

  /// The holder's rule: it counts from when it *sent* the last beat that was answered.
  bool fenced_by_time(int holder, int owner) {
    auto link = node(holder).links.find(owner);
    return link == node(holder).links.end() || now_ - link->second.last_proven > kLease;
  }

  void beat(int number) {
    if (!node(number).alive) return;
    for (auto& [peer, link] : node(number).links) {
      if (node(number).ledger.is_lost(node(peer).info)) continue;
      const Time sent = now_;
      const int to = peer;
      transmit(number, to, [this, number, to, sent] { answer_beat(to, number, sent); });
    }
    at(now_ + kBeat, [this, number] { beat(number); });
  }

  void answer_beat(int number, int peer, Time sent) {
    check_leases(number);
    auto link = node(number).links.find(peer);
    // A fenced peer gets no more answers, so it fences itself too.
    if (link == node(number).links.end() || node(number).ledger.is_lost(node(peer).info)) return;
    link->second.last_answered_beat = now_;
    transmit(number, peer, [this, number, peer, sent] {
      check_leases(peer);
      auto proven = node(peer).links.find(number);
      if (proven == node(peer).links.end()) return;
      proven->second.last_proven = std::max(proven->second.last_proven, sent);
    });
  }

  /// Ends leases that are over; done before anything else happens at a worker.
  void check_leases(int number) {
    Node& here = node(number);
    for (auto& [peer, link] : here.links) {
      const WorkerInfo& who = node(peer).info;
      if (now_ - link.last_proven > kLease && !here.ledger.is_lost(who)) {
        ++report_.fences;
        link.outbox.peer_lost();
        perform(number, here.ledger.fence(who, now_));
      }
      if (now_ - link.last_answered_beat > kLease) {
        link.outbox.peer_lost();
        perform(number, here.ledger.worker_lost(who, now_));
      }
    }
  }

  void tick(int number) {
    if (!node(number).alive) return;
    check_leases(number);
    perform(number, node(number).ledger.tick(now_));
    for (auto& [peer, link] : node(number).links) pump(number, peer, link);
    if (node(number).leaving) try_to_leave(number);
    at(now_ + kTick, [this, number] { tick(number); });
  }

  void begin_leave() {
    const int number = some_node();
    if (number < 0) return;
    Node& here = node(number);
    here.leaving = true;
    drop_handles(number);
    perform(number, here.ledger.release_all_users(now_));
  }

  void try_to_leave(int number) {
    Node& here = node(number);
    drop_handles(number);
    bool unsent = false;
    for (const auto& [peer, link] : here.links) unsent |= link.outbox.unacknowledged() != 0;
    if (!here.ledger.quiescent() || unsent || now_ > kProgramEnds) return;
    ++report_.left;
    if (!here.entries.empty()) violate("a worker left with values that were not destroyed");
    here.alive = false;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const int peer = static_cast<int>(i);
      if (peer == number || !node(peer).alive) continue;
      if (auto link = node(peer).links.find(number); link != node(peer).links.end()) {
        link->second.outbox.peer_lost();
      }
      perform(peer, node(peer).ledger.worker_lost(here.info, now_));
    }
  }

  // --- The control channel ---

  void pump(int number, int peer, Link& link) {
    for (auto& due : link.outbox.due(now_)) {
      const std::uint64_t sequence = due.sequence;
      const LedgerMessage message = due.payload;
      transmit(number, peer, [this, number, peer, sequence, message] {
        on_control(peer, number, sequence, message);
      });
    }
  }

  void on_control(int number, int peer, std::uint64_t sequence, const LedgerMessage& message) {
    check_leases(number);
    Node& here = node(number);
    auto link = here.links.find(peer);
    if (link == here.links.end()) return;
    const WorkerInfo& sender = node(peer).info;
    const Inbox::Verdict verdict = link->second.inbox.accept(sender.incarnation, sequence);
    if (verdict == Inbox::Verdict::kNew) perform(number, here.ledger.handle(message, sender, now_));
    if (!link->second.inbox.ack_due()) return;
    const ControlAck ack = link->second.inbox.take_ack();
    transmit(number, peer, [this, number, peer, ack] {
      if (auto back = node(peer).links.find(number); back != node(peer).links.end()) {
        back->second.outbox.on_ack(ack);
      }
    });
  }

  void perform(int number, const Handled& handled) { perform(number, handled.actions); }

  void perform(int number, const Actions& actions) {
    Node& here = node(number);
    for (const Action& action : actions) {
      if (const auto* send = std::get_if<Send>(&action)) {
        post(number, *send);
      } else if (const auto* confirmed = std::get_if<Confirmed>(&action)) {
        for (auto& [id, handle] : here.handles) {
          if (same_fork(handle, confirmed->fork)) handle.waiting = false;
        }
      } else if (const auto* failed = std::get_if<Failed>(&action)) {
        for (auto& [id, handle] : here.handles) {
          if (!same_fork(handle, failed->fork)) continue;
          handle.failed = true;
          handle.waiting = false;
        }
      } else if (const auto* destroy = std::get_if<DestroyValue>(&action)) {
        if (here.entries.erase(destroy->rref) == 0) {
          violate(absl::StrCat(describe(destroy->rref), " destroyed twice or never made"));
        }
        here.values.erase(destroy->rref);
        judge_records_under_way(destroy->rref, number);
      }
    }
    judge_holders(number);
  }

  static bool same_fork(const Handle& handle, const ForkId& fork) {
    return !handle.fork.empty() && public_part(handle.fork) == public_part(fork);
  }

  void post(int number, const Send& send) {
    if (send.to == node(number).info) {
      const LedgerMessage message = send.message;
      at(now_, [this, number, message] {
        Node& here = node(number);
        if (here.alive) perform(number, here.ledger.handle(message, here.info, now_));
      });
      return;
    }
    const int peer = static_cast<int>(send.to.incarnation.value) - 1;
    auto link = node(number).links.find(peer);
    if (link == node(number).links.end()) {
      // Known from a record only, and gone before we were connected.
      const WorkerInfo who = send.to;
      at(now_, [this, number, who] {
        if (node(number).alive) perform(number, node(number).ledger.worker_lost(who, now_));
      });
      return;
    }
    link->second.outbox.send(send.message, now_);
    pump(number, peer, link->second);
  }

  // --- Programs ---

  void program_step() {
    const int number = some_node();
    if (number < 0) return;
    check_leases(number);
    const std::size_t kind = random_.below(100);
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
      forge(number);
    }
  }

  int other_node(int number) {
    for (int tries = 0; tries < 8; ++tries) {
      const int other = some_node();
      if (other >= 0 && other != number) return other;
    }
    return -1;
  }

  Description described() const { return Description{"T", "simulation"}; }

  int add_handle(int number, Handle handle) {
    node(number).handles.emplace(++last_handle_, std::move(handle));
    return last_handle_;
  }

  /// A handle that can be used or shared now, or nothing.
  std::map<int, Handle>::iterator some_handle(int number) {
    auto& handles = node(number).handles;
    std::vector<int> usable;
    for (const auto& [id, handle] : handles) {
      if (!handle.waiting && !handle.failed) usable.push_back(id);
    }
    return usable.empty() ? handles.end() : handles.find(usable[random_.below(usable.size())]);
  }

  void own(int number) {
    Node& here = node(number);
    const bool pending = random_.chance(30);  // `remote` to oneself
    Handle handle;
    handle.role = Role::kOwner;
    handle.rref = here.ledger.own(pending ? ValueState::kPending : ValueState::kReady, described());
    ++report_.created;
    here.entries.insert(handle.rref);
    add_handle(number, handle);
    if (pending) {
      finish_later(number, handle.rref, [](bool) {});
    } else {
      here.values[handle.rref] = tag(handle.rref, number);
    }
  }

  static std::uint64_t tag(const RRefId& rref, int owner) {
    return (rref.serial << 16) ^ (rref.creator.value << 8) ^ static_cast<std::uint64_t>(owner);
  }

  void finish_later(int owner, const RRefId& rref, const std::function<void(bool)>& done) {
    const bool fails = random_.chance(15);
    at(now_ + random_.between(Time(0), seconds(4)), [this, owner, rref, fails, done] {
      Node& here = node(owner);
      if (!here.alive) return;
      check_leases(owner);
      if (!fails) here.values[rref] = tag(rref, owner);
      Handled handled = fails ? here.ledger.owner_failed(rref, absl::InternalError("broken"))
                              : here.ledger.owner_fulfilled(rref);
      if (!handled.status.ok()) violate(absl::StrCat("value not set: ", handled.status.ToString()));
      perform(owner, handled);
      done(!fails);
    });
  }

  void create(int number) {
    const int owner = other_node(number);
    if (owner < 0) return;
    Node& here = node(number);
    absl::StatusOr<Created> made = here.ledger.create(node(owner).info, described());
    if (!made.ok()) return;
    Handle handle;
    handle.rref = made->rref;
    handle.fork = made->fork;
    const ForkId fork = made->fork;
    const RRefId rref = made->rref;
    add_handle(number, handle);
    const Time deadline = now_ + random_.between(milliseconds(100), seconds(20));
    transmit(number, owner, [this, number, owner, rref, fork, deadline] {
      on_create(owner, number, rref, fork, deadline);
    });
    // The call ends at its deadline, or is cancelled before.
    const Time end =
        random_.chance(15) ? now_ + random_.between(Time(0), deadline - now_) : deadline;
    at(end, [this, number, fork, deadline] {
      if (!node(number).alive) return;
      check_leases(number);
      perform(number, node(number).ledger.create_failed(
                          fork, absl::DeadlineExceededError("no answer"), deadline, now_));
    });
  }

  void on_create(int owner, int caller, const RRefId& rref, const ForkId& fork, Time deadline) {
    if (now_ > deadline) return;
    check_leases(owner);
    Node& here = node(owner);
    const WorkerInfo& sender = node(caller).info;
    Handled handled = here.ledger.on_create(rref, fork, sender, described(), now_);
    perform(owner, handled);
    if (!handled.status.ok()) return;
    ++report_.created;
    here.entries.insert(rref);
    finish_later(owner, rref, [this, owner, caller, fork, deadline](bool worked) {
      transmit(owner, caller, [this, caller, fork, deadline, worked] {
        if (now_ > deadline) return;
        check_leases(caller);
        Ledger& ledger = node(caller).ledger;
        perform(caller,
                worked ? ledger.create_succeeded(fork, now_)
                       : ledger.create_failed(fork, absl::InternalError("broken"), deadline, now_));
      });
    });
  }

  absl::StatusOr<ForkRecord> pack(int number, const Handle& handle, int target, Time deadline) {
    Ledger& ledger = node(number).ledger;
    return handle.role == Role::kOwner
               ? ledger.share_owned(handle.rref, node(target).info, deadline)
               : ledger.share_user(handle.fork, node(target).info, deadline);
  }

  /// A call with references as arguments, and perhaps one in its result.
  void call(int number) {
    const int target = random_.chance(8) ? number : other_node(number);
    if (target < 0) return;
    const int id = static_cast<int>(calls_.size());
    Call made;
    made.from = number;
    made.to = target;
    made.deadline = now_ + random_.between(milliseconds(100), seconds(20));
    const Time deadline = made.deadline;
    std::vector<ForkRecord> records;
    const std::size_t count = 1 + random_.below(2);
    for (std::size_t i = 0; i < count; ++i) {
      auto handle = some_handle(number);
      if (handle == node(number).handles.end()) break;
      absl::StatusOr<ForkRecord> record = pack(number, handle->second, target, deadline);
      if (!record.ok()) continue;
      made.carried.push_back(record->fork);
      records.push_back(*std::move(record));
    }
    calls_.push_back(made);
    if (random_.chance(3)) {
      for (const ForkId& fork : made.carried) {
        perform(number, node(number).ledger.carrier_not_sent(fork, now_));
      }
      return;
    }
    send_records(number, target, records, deadline,
                 [this, number, target, id] { reply(target, number, id); });
    at(deadline, [this, number, id] {
      Call& late = calls_[static_cast<std::size_t>(id)];
      if (!late.open || !node(number).alive) return;
      late.open = false;
      check_leases(number);
      for (const ForkId& fork : late.carried) {
        perform(number, node(number).ledger.carrier_failed(fork, now_));
      }
    });
  }

  void send_records(int from, int to, const std::vector<ForkRecord>& records, Time deadline,
                    const std::function<void()>& then) {
    const std::uint64_t id = ++last_carrier_;
    const std::optional<Time> arrives =
        transmit(from, to, [this, from, to, records, deadline, then, id] {
          under_way_.erase(id);
          if (now_ > deadline) return;
          check_leases(to);
          for (const ForkRecord& record : records) take_in(to, from, record);
          then();
        });
    if (arrives.has_value() && *arrives <= deadline) {
      under_way_.emplace(id, UnderWay{from, to, records});
    }
  }

  void take_in(int number, int from, const ForkRecord& record) {
    Node& here = node(number);
    Outcome<Received> outcome = here.ledger.receive(record, node(from).info, described(), now_);
    if (outcome.result.ok()) {
      ++report_.received;
      Handle handle;
      handle.role = outcome.result->role;
      handle.rref = outcome.result->rref;
      handle.fork = outcome.result->fork;
      handle.waiting = outcome.result->state == Received::State::kWaiting;
      add_handle(number, handle);
    } else if (absl::IsPermissionDenied(outcome.result.status()) &&
               !here.ledger.is_lost(node(from).info)) {
      violate(absl::StrCat("an honest record was refused: ", outcome.result.status().ToString()));
    }
    perform(number, outcome.actions);
  }

  void reply(int callee, int caller, int id) {
    const Time deadline = calls_[static_cast<std::size_t>(id)].deadline;
    std::vector<ForkRecord> results;
    auto handle = some_handle(callee);
    if (handle != node(callee).handles.end() && random_.chance(50)) {
      absl::StatusOr<ForkRecord> record = pack(callee, handle->second, caller, deadline);
      if (record.ok()) results.push_back(*std::move(record));
    }
    // A result that nobody waits for is thrown away unread.
    const std::uint64_t carrier = ++last_carrier_;
    const std::optional<Time> arrives =
        transmit(callee, caller, [this, callee, caller, id, results, deadline, carrier] {
          under_way_.erase(carrier);
          Call& answered = calls_[static_cast<std::size_t>(id)];
          if (now_ > deadline || !answered.open) return;
          answered.open = false;
          check_leases(caller);
          for (const ForkRecord& record : results) take_in(caller, callee, record);
        });
    if (arrives.has_value() && *arrives <= deadline) {
      under_way_.emplace(carrier, UnderWay{callee, caller, results, id});
    }
  }

  void use(int number) {
    auto handle = some_handle(number);
    if (handle == node(number).handles.end()) return;
    Node& here = node(number);
    const int id = handle->first;
    if (handle->second.role == Role::kOwner) {
      absl::StatusOr<UseState> state = here.ledger.owned_state(handle->second.rref);
      if (!state.ok() && absl::IsNotFound(state.status())) violate("a local handle lost its value");
      return;
    }
    absl::StatusOr<UserView> view = here.ledger.view(handle->second.fork);
    if (!view.ok()) return violate(absl::StrCat("unusable handle: ", view.status().ToString()));
    const UserView seen = *view;
    const int owner = static_cast<int>(seen.owner.incarnation.value) - 1;
    ++handle->second.uses;
    transmit(number, owner, [this, number, owner, seen] { on_use(owner, number, seen); });
    at(now_ + seconds(5), [this, number, id] {
      auto done = node(number).handles.find(id);
      if (done != node(number).handles.end()) --done->second.uses;
    });
  }

  void on_use(int owner, int user, const UserView& seen) {
    check_leases(owner);
    Node& here = node(owner);
    const WorkerInfo& sender = node(user).info;
    absl::StatusOr<UseState> state = here.ledger.authorise_use(seen.rref, seen.fork, sender);
    if (state.ok() && *state == UseState::kReady) {
      ++report_.uses;
      auto value = here.values.find(seen.rref);
      if (value == here.values.end()) {
        violate("a use was allowed of a value that is not there");
      } else if (value->second != tag(seen.rref, owner)) {
        violate("a reference yielded another reference's value");
      }
    }
    const bool entitled = node(user).alive && !fenced_by_time(user, owner) &&
                          !node(user).ledger.is_lost(here.info) && !here.ledger.is_lost(sender) &&
                          node(user).ledger.view(seen.fork).ok();
    if (entitled && !state.ok() && state.status().code() != absl::StatusCode::kInternal) {
      violate(absl::StrCat("a rightful use was refused: ", state.status().ToString()));
    }
  }

  void drop_some_handle(int number) {
    auto& handles = node(number).handles;
    if (handles.empty()) return;
    auto handle =
        std::next(handles.begin(), static_cast<std::ptrdiff_t>(random_.below(handles.size())));
    if (handle->second.uses == 0) release(number, handle);
  }

  std::map<int, Handle>::iterator release(int number, std::map<int, Handle>::iterator handle) {
    Node& here = node(number);
    const Handle dropped = handle->second;
    auto next = here.handles.erase(handle);
    // A wait at the owner that failed has left nothing to release.
    if (dropped.role == Role::kOwner && dropped.failed) return next;
    const bool owned = dropped.role == Role::kOwner && !dropped.waiting;
    Handled handled = owned ? here.ledger.release_owned(dropped.rref)
                            : here.ledger.release_user(dropped.fork, now_);
    if (!handled.status.ok()) violate(absl::StrCat("release: ", handled.status.ToString()));
    perform(number, handled);
    return next;
  }

  void drop_handles(int number) {
    auto& handles = node(number).handles;
    for (auto handle = handles.begin(); handle != handles.end();) {
      handle = handle->second.uses == 0 ? release(number, handle) : std::next(handle);
    }
  }

  // --- Hostile messages (R4) ---

  void forge(int attacker) {
    const int owner = other_node(attacker);
    if (owner < 0) return;
    Node& victim = node(owner);
    check_leases(owner);
    // The worst case: the attacker knows everything about somebody else's fork, secret included.
    std::vector<LedgerInspector::HeldFork> targets;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (static_cast<int>(i) == attacker || !nodes_[i]->alive) continue;
      for (const auto& held : LedgerInspector::held_forks(nodes_[i]->ledger)) {
        if (held.owner == victim.info &&
            LedgerInspector::lists(victim.ledger, held.rref, held.fork, nodes_[i]->info)) {
          targets.push_back(held);
        }
      }
    }
    if (targets.empty()) return;
    const auto target = targets[random_.below(targets.size())];
    ++report_.forgeries;
    const WorkerInfo& evil = node(attacker).info;
    const std::string before = LedgerInspector::fingerprint(victim.ledger);
    absl::Status status;
    switch (random_.below(5)) {
      case 0:
        status = hostile(owner, Delete{target.rref, target.fork, Time(0)}, evil);
        break;
      case 1:
        status = hostile(owner, Claim{target.rref, target.fork}, evil);
        break;
      case 2:
        status = victim.ledger.authorise_use(target.rref, target.fork, evil).status();
        break;
      case 3: {
        // A child of a fork that was never passed on, with a token made without the secret.
        const ForkId child{target.fork.creator, 1000000 + random_.below(1000), random_.next()};
        status =
            hostile(owner, AddFork{target.rref, public_part(target.fork), child, Token{}}, evil);
        break;
      }
      default: {
        ForkRecord record;
        record.owner = victim.info;
        record.rref = target.rref;
        record.parent = public_part(target.fork);
        record.fork = ForkId{evil.incarnation, 1000000 + random_.below(1000), 0};
        status = victim.ledger.receive(record, evil, described(), now_).result.status();
        break;
      }
    }
    if (status.ok()) violate("a forged message was obeyed");
    if (LedgerInspector::fingerprint(victim.ledger) != before) {
      violate("a forged message changed a table");
    }
  }

  absl::Status hostile(int owner, const LedgerMessage& message, const WorkerInfo& evil) {
    return node(owner).ledger.handle(message, evil, now_).status;
  }

  // --- Invariants ---

  struct UnderWay {
    int from;
    int to;
    std::vector<ForkRecord> records;
    int answers = -1;  // the call that these are results of
  };

  bool trusting(int holder, int owner) {
    return holder == owner ||
           (node(holder).alive && node(owner).alive && !fenced_by_time(holder, owner) &&
            !node(holder).ledger.is_lost(node(owner).info));
  }

  /// What a live, unfenced holder was told is his must be listed at its owner.
  void judge_holders(int changed) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const int holder = static_cast<int>(i);
      if (!node(holder).alive) continue;
      for (const auto& held : LedgerInspector::held_forks(node(holder).ledger)) {
        const int owner = static_cast<int>(held.owner.incarnation.value) - 1;
        if (holder != changed && owner != changed) continue;
        if (held.failed || held.state != UserState::kListed || !trusting(holder, owner)) continue;
        if (!LedgerInspector::lists(node(owner).ledger, held.rref, held.fork, node(holder).info)) {
          violate(absl::StrCat("confirmed ", describe(held.fork), " of ", describe(held.rref),
                               " at ", describe(node(holder).info), " is not listed at ",
                               describe(held.owner)));
        }
      }
    }
  }

  void judge_records_under_way(const RRefId& destroyed, int owner) {
    for (const auto& [id, carrier] : under_way_) {
      if (!node(carrier.from).alive || !node(carrier.to).alive) continue;
      if (carrier.answers >= 0 && !calls_[static_cast<std::size_t>(carrier.answers)].open) continue;
      for (const ForkRecord& record : carrier.records) {
        if (record.rref != destroyed || record.owner != node(owner).info) continue;
        const bool legitimate = trusting(carrier.from, owner) && trusting(carrier.to, owner) &&
                                trusting(carrier.to, carrier.from) &&
                                trusting(carrier.from, carrier.to) &&
                                !node(owner).ledger.is_lost(node(carrier.to).info) &&
                                !node(owner).ledger.is_lost(node(carrier.from).info) &&
                                !node(carrier.from).ledger.is_lost(node(carrier.to).info) &&
                                !LedgerInspector::refuses(node(carrier.to).ledger, record.fork) &&
                                !LedgerInspector::holds(node(carrier.to).ledger, record.fork);
        if (legitimate) {
          violate(absl::StrCat(describe(destroyed), " destroyed while ", describe(record.fork),
                               " is under way"));
        }
      }
    }
  }

  /// The network is whole again and programs end: all handles go.
  void wind_down() {
    healed_ = true;
    cuts_.clear();
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const int number = static_cast<int>(i);
      if (!node(number).alive) continue;
      check_leases(number);
      if (random_.chance(50)) perform(number, node(number).ledger.release_all_users(now_));
      drop_handles(number);
    }
    if (now_ < kAllQuiet - seconds(30)) at(now_ + seconds(10), [this] { wind_down(); });
  }

  void judge_the_end() {
    for (const auto& one : nodes_) {
      if (!one->alive) continue;
      for (const auto& [id, handle] : one->handles) {
        violate(handle.waiting ? "a reference neither worked nor failed" : "a handle is left");
      }
      const LedgerCounters left = one->ledger.counters();
      if (!left.quiescent() || left.tombstones != 0) {
        std::string text = absl::StrCat(describe(one->info), " keeps entries: forks ", left.forks,
                                        ", children ", left.pending_children, ", parked ",
                                        left.parked, ", tombstones ", left.tombstones);
        for (const LiveReference& live : one->ledger.live_references()) {
          absl::StrAppend(&text, "\n  ", to_text(live));
        }
        violate(text);
      }
      if (!one->entries.empty()) violate("values were never destroyed");
      for (const auto& [peer, link] : one->links) {
        if (link.outbox.unacknowledged() != 0) violate("an outbox is not empty");
      }
    }
  }

  Random random_;
  SimulationReport report_;
  int names_ = 0;
  int drop_percent_ = 0;
  int duplicate_percent_ = 0;
  int slow_percent_ = 0;
  bool healed_ = false;
  Time now_{0};
  std::uint64_t order_ = 0;
  std::priority_queue<Event> queue_;
  std::vector<std::unique_ptr<Node>> nodes_;  // every process that ever was, by incarnation
  std::map<std::pair<int, int>, Time> cuts_;
  std::vector<Call> calls_;
  std::map<std::uint64_t, UnderWay> under_way_;
  std::uint64_t last_carrier_ = 0;
  int last_handle_ = 0;
};

}  // namespace

void SimulationReport::add(const SimulationReport& other) {
  events += other.events;
  created += other.created;
  received += other.received;
  uses += other.uses;
  forgeries += other.forgeries;
  crashes += other.crashes;
  fences += other.fences;
  left += other.left;
}

SimulationReport simulate(std::uint64_t seed) { return Simulation(seed).run(); }

}  // namespace sinew::internal::ledger
