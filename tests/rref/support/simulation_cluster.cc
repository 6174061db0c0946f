#include "sinew/tests/rref/support/simulation_cluster.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "sinew/tests/rref/support/ledger_inspector.h"

namespace sinew::internal::ledger {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time kSimulatedLease = seconds(15);
constexpr Time kBeat = seconds(3);
constexpr Time kTick = seconds(1);

bool same_fork(const SimulatedCluster::Handle& handle, const ForkId& fork) {
  return !handle.fork.empty() && public_part(handle.fork) == public_part(fork);
}

}  // namespace

// --- Virtual time and network --------------------------------------------------------------------

SimulatedCluster::SimulatedCluster(std::uint64_t seed) : random_(seed * 2 + 1) {
  report_.seed = seed;
  const int names = 3 + static_cast<int>(random_.below(2));
  drop_percent_ = static_cast<int>(random_.below(4)) * 6;
  duplicate_percent_ = static_cast<int>(random_.below(3)) * 8;
  slow_percent_ = static_cast<int>(random_.below(3)) * 5;
  for (int name = 0; name < names; ++name) start_node(name);
}

void SimulatedCluster::run_until(Time end) {
  while (!queue_.empty() && report_.violation.empty()) {
    Event event = queue_.top();
    queue_.pop();
    if (event.time > end) break;
    now_ = event.time;
    ++report_.events;
    (*event.what)();
  }
}

void SimulatedCluster::heal() {
  healed_ = true;
  cuts_.clear();
}

void SimulatedCluster::at(Time time, std::function<void()> what) {
  queue_.push(Event{time, ++order_, std::make_shared<std::function<void()>>(std::move(what))});
}

void SimulatedCluster::violate(const std::string& what) {
  if (!report_.violation.empty()) return;
  report_.violation = absl::StrCat(what, " (at ", now_.count() / 1000000, " ms)");
}

bool SimulatedCluster::cut(int from, int to) const {
  auto found = cuts_.find({from, to});
  return found != cuts_.end() && found->second > now_;
}

std::optional<Time> SimulatedCluster::transmit(int from, int to,
                                               const std::function<void()>& arrive) {
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

void SimulatedCluster::convey(int from, int to, std::function<bool()> wanted,
                              std::function<void()> arrive) {
  const bool swallowed = cut(from, to) || (!healed_ && random_.chance(drop_percent_));
  const bool slow = swallowed || (!healed_ && random_.chance(slow_percent_));
  const Time delay = slow ? random_.between(milliseconds(1), seconds(4))
                          : random_.between(milliseconds(1), milliseconds(60));
  at(now_ + delay,
     [this, from, to, swallowed, wanted = std::move(wanted), arrive = std::move(arrive)] {
       if (!node(to).alive) return;
       if (!swallowed) return arrive();
       if (node(from).alive && wanted()) convey(from, to, wanted, arrive);
     });
}

// --- Processes, leases ---------------------------------------------------------------------------

int SimulatedCluster::start_node(int name) {
  const int number = static_cast<int>(nodes_.size());
  // The same name and rank come back with a new incarnation.
  WorkerInfo info{absl::StrCat("n", name), name,
                  Incarnation{static_cast<std::uint64_t>(number) + 1}};
  LedgerOptions options;
  options.lease = kSimulatedLease;
  options.make_token = test_token;
  options.draw_secret = [this] { return random_.next(); };
  nodes_.push_back(std::make_unique<Node>(info, options));
  for (int other = 0; other < number; ++other) {
    if (!node(other).alive) continue;
    node(other).links.emplace(number, Link(now_));
    node(number).links.emplace(other, Link(now_));
  }
  at(now_ + random_.between(Time(0), kBeat), [this, number] { beat(number); });
  at(now_ + random_.between(Time(0), kTick), [this, number] { tick(number); });
  return number;
}

void SimulatedCluster::partition() {
  const int a = some_node();
  const int b = some_node();
  if (a < 0 || b < 0 || a == b) return;
  const Time end = now_ + random_.between(milliseconds(200), seconds(40));
  cuts_[{a, b}] = end;
  if (random_.chance(70)) cuts_[{b, a}] = end;
}

void SimulatedCluster::crash() {
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

int SimulatedCluster::some_node() {
  std::vector<int> alive;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i]->alive && !nodes_[i]->leaving) alive.push_back(static_cast<int>(i));
  }
  return alive.empty() ? -1 : alive[random_.below(alive.size())];
}

int SimulatedCluster::other_node(int number) {
  for (int tries = 0; tries < 8; ++tries) {
    const int other = some_node();
    if (other >= 0 && other != number) return other;
  }
  return -1;
}

bool SimulatedCluster::fenced_by_time(int holder, int owner) {
  auto link = node(holder).links.find(owner);
  return link == node(holder).links.end() || now_ - link->second.last_proven > kSimulatedLease;
}

void SimulatedCluster::beat(int number) {
  if (!node(number).alive) return;
  for (auto& [peer, link] : node(number).links) {
    if (node(number).ledger.is_lost(node(peer).info)) continue;
    const Time sent = now_;
    const int to = peer;
    transmit(number, to, [this, number, to, sent] { answer_beat(to, number, sent); });
  }
  at(now_ + kBeat, [this, number] { beat(number); });
}

void SimulatedCluster::answer_beat(int number, int peer, Time sent) {
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

void SimulatedCluster::check_leases(int number) {
  Node& here = node(number);
  for (auto& [peer, link] : here.links) {
    const WorkerInfo& who = node(peer).info;
    if (now_ - link.last_proven > kSimulatedLease && !here.ledger.is_lost(who)) {
      ++report_.fences;
      link.end();
      perform(number, here.ledger.fence(who, now_));
    }
    if (now_ - link.last_answered_beat > kSimulatedLease) {
      link.end();
      perform(number, here.ledger.worker_lost(who, now_));
    }
  }
}

void SimulatedCluster::tick(int number) {
  if (!node(number).alive) return;
  check_leases(number);
  perform(number, node(number).ledger.tick(now_));
  if (!LedgerInspector::counters_are_right(node(number).ledger)) violate("counters are wrong");
  if (node(number).leaving) try_to_leave(number);
  at(now_ + kTick, [this, number] { tick(number); });
}

void SimulatedCluster::begin_leave() {
  const int number = some_node();
  if (number < 0) return;
  Node& here = node(number);
  here.leaving = true;
  drop_handles(number);
  perform(number, here.ledger.release_all_users(now_));
}

void SimulatedCluster::try_to_leave(int number) {
  Node& here = node(number);
  drop_handles(number);
  bool unsent = false;
  for (const auto& [peer, link] : here.links) unsent |= !link.unheard.empty();
  if (!here.ledger.quiescent() || unsent || now_ > kProgramEnds) return;
  ++report_.left;
  if (!here.entries.empty()) violate("a worker left with values that were not destroyed");
  here.alive = false;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const int peer = static_cast<int>(i);
    if (peer == number || !node(peer).alive) continue;
    if (auto link = node(peer).links.find(number); link != node(peer).links.end()) {
      link->second.end();
    }
    perform(peer, node(peer).ledger.worker_lost(here.info, now_));
  }
}

// --- The control channel -------------------------------------------------------------------------

bool SimulatedCluster::is_unheard(int number, int peer, std::uint64_t id) {
  const auto link = node(number).links.find(peer);
  return link != node(number).links.end() && link->second.unheard.count(id) != 0;
}

void SimulatedCluster::on_control(int number, int peer, std::uint64_t id,
                                  const LedgerMessage& message) {
  check_leases(number);
  Node& here = node(number);
  if (here.links.count(peer) == 0) return;
  perform(number, here.ledger.handle(message, node(peer).info, now_));
  // The receipt.
  convey(
      number, peer, [this, number, peer, id] { return is_unheard(peer, number, id); },
      [this, number, peer, id] {
        const auto back = node(peer).links.find(number);
        if (back != node(peer).links.end()) back->second.unheard.erase(id);
      });
}

void SimulatedCluster::perform(int number, const Actions& actions) {
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

void SimulatedCluster::post(int number, const Send& send) {
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
  if (link->second.ended) return;
  const std::uint64_t id = ++last_message_;
  link->second.unheard.insert(id);
  const LedgerMessage message = send.message;
  convey(
      number, peer, [this, number, peer, id] { return is_unheard(number, peer, id); },
      [this, number, peer, id, message] { on_control(peer, number, id, message); });
}

// --- Handles -------------------------------------------------------------------------------------

std::map<int, SimulatedCluster::Handle>::iterator SimulatedCluster::release(
    int number, std::map<int, Handle>::iterator handle) {
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

void SimulatedCluster::drop_handles(int number) {
  auto& handles = node(number).handles;
  for (auto handle = handles.begin(); handle != handles.end();) {
    handle = handle->second.uses == 0 ? release(number, handle) : std::next(handle);
  }
}

}  // namespace sinew::internal::ledger
