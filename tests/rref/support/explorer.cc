#include "sinew/tests/rref/support/explorer.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/tests/rref/support/ledger_inspector.h"

// What is reduced, and why nothing is missed
//
// A reduction may follow fewer orders as long as every violation that can be reached at all can be
// reached by an order that is followed. The whole search is over a finite graph without cycles, so
// it is enough that each rule keeps that promise for one state, for all that the unreduced world
// can still do.
//
// Faults that are late. A fault that is noticed by nobody yet changes nothing, so it strikes in the
// moment in which it is noticed:
//  - A duplicate is made when the first copy is delivered. (Before, there is just a message on its
//    way.)
//  - A call is lost, or given up, in the moment in which its sender learns of the failure. Until
//    then a lost call is a slow one. If its sender dies first, a lost record is one that comes
//    after the receiver has heard of that death, and such packets have no effect.
//  - A worker dies in the moment in which the first of the others learns of it. Until then it is a
//    slow one. Losing what is on its way to it makes no difference before that either.
//
// Program steps that are late. See ReactionTable::is_silent: nothing but the worker itself can see
// a silent step, so it is put off until something happens to that worker with which it does not
// commute; and whether it does is computed, not assumed.
//
// Deliveries that are early: visit_eager().

namespace sinew::internal::ledger {

namespace {

constexpr Time kStep = std::chrono::seconds(100);  // past deadlines, leases, tombstones and parking

class Explorer {
 public:
  Explorer(const Scenario& scenario, const Faults& faults, Reduction reduction,
           const StateVisitor& visitor)
      : reduction_(reduction), table_(scenario, reduction), visitor_(visitor) {
    for (int slot = 0; slot < slots(); ++slot) {
      given_up_.push_back(&table_.letter(model().given_up(slot)));
    }
    WorldState start;
    start.left = faults;
    for (int w = 0; w < scenario.workers; ++w) {
      start.workers.push_back(&table_.node(model().started(w)));
    }
    for (const Slot& slot : scenario.slots) {
      if (slot.root == Slot::Root::kCreateFails) start.moment.faulty = true;
    }
    visit(start);
    if (!result_.violation.empty()) {
      result_.violation = absl::StrCat(result_.violation, "\n  in ", to_text(scenario),
                                       "\n  after: ", absl::StrJoin(violating_trace_, "; "));
    }
  }

  Exploration result() const { return result_; }

 private:
  struct Event {
    const char* what;
    const Letter* letter;
  };

  const WorkerModel& model() const { return table_.model(); }
  int slots() const { return static_cast<int>(model().scenario().slots.size()); }
  int workers() const { return model().scenario().workers; }
  bool reduced() const { return reduction_ == Reduction::kFull; }
  bool stopped() const { return !result_.violation.empty(); }

  void violate(const std::string& what) {
    if (stopped() || what.empty()) return;
    result_.violation = what;
    for (const Event& event : trace_) {
      violating_trace_.push_back(absl::StrCat(event.what, " ", event.letter->packet.name()));
    }
  }

  // --- Search ---

  void visit(const WorldState& state) {
    if (stopped() || !visited_.insert(state.hash()).second) return;
    ++result_.states;
    if (visitor_) visitor_(state, Progress::kGoesOn);
    violate(judge(state));
    if (visit_without_effect(state)) return;
    if (reduced() && visit_eager(state)) return;
    const bool delivered = visit_deliveries(state);
    const bool stepped = visit_steps(state);
    if (reduced()) {
      visit_failed_calls(state);
      visit_late_crashes(state);
    } else {
      visit_packet_faults(state);
      visit_crashes(state);
      visit_passing_of_time(state);
    }
    if (delivered || stepped || stopped() || visit_silent_steps(state)) return;
    ++result_.endings;
    if (visitor_) visitor_(state, Progress::kEnded);
    close(state);
  }

  void follow(WorldState next, const char* what, const Letter& letter) {
    if (stopped()) return;
    ++result_.transitions;
    trace_.push_back(Event{what, &letter});
    visit(next);
    trace_.pop_back();
  }

  /// Everything that a worker may do on a packet, in worlds in which it has been taken from the
  /// net.
  void follow_ways(const WorldState& state, const char* what, const Letter& letter) {
    if (stopped()) return;
    const int to = letter.packet.to;
    for (const Effect& way : table_.react_all_ways(state.worker(to), letter, state.moment)) {
      trace_.push_back(Event{what, &letter});
      violate(way.violation);
      trace_.pop_back();
      WorldState next = state;
      next.apply(to, way);
      follow(std::move(next), what, letter);
    }
  }

  void follow_delivery(const WorldState& state, std::size_t i) {
    WorldState taken = state;
    const Letter& letter = taken.take(i);
    follow_ways(taken, "deliver", letter);
    if (!reduced() || taken.left.duplicates == 0 || !letter.packet.is_message()) return;
    --taken.left.duplicates;
    Packet copy = letter.packet;
    copy.twin = true;
    taken.send(table_.letter(std::move(copy)));
    follow_ways(taken, "deliver and repeat", letter);
  }

  /// A packet that changes nothing, now and whenever it may come, commutes with all that can
  /// happen: its delivery alone stands for all orders. It is delivered all the same, to see that it
  /// changes nothing.
  bool visit_without_effect(const WorldState& state) {
    for (std::size_t i = 0; i < state.net.size(); ++i) {
      if (!without_effect(state, state.net[i]->packet)) continue;
      WorldState next = state;
      const Letter& letter = next.take(i);
      const Effect& effect = table_.react(state.worker(letter.packet.to), letter, state.moment);
      violate(effect.violation);
      next.apply(letter.packet.to, effect);
      follow(std::move(next), "deliver idle", letter);
      return true;
    }
    return false;
  }

  bool visit_deliveries(const WorldState& state) {
    for (std::size_t i = 0; i < state.net.size() && !stopped(); ++i) {
      // Equal packets lead to equal states.
      if (i == 0 || state.net[i] != state.net[i - 1]) follow_delivery(state, i);
    }
    return !state.net.empty();
  }

  bool visit_steps(const WorldState& state) {
    bool any = false;
    for (int slot = 0; slot < slots() && !stopped(); ++slot) {
      const Letter& step = table_.step_of(slot);
      const Node& worker = state.worker(step.packet.to);
      if (!model().can_step(worker.state, slot)) continue;
      any |= !table_.react_all_ways(worker, step, state.moment).empty();
      follow_ways(state, "slot", step);
    }
    return any;
  }

  /// Steps that have been put off until there is nothing else to do.
  bool visit_silent_steps(const WorldState& state) {
    for (int slot = 0; slot < slots(); ++slot) {
      const Letter& step = table_.step_of(slot);
      if (!model().can_step(state.worker(step.packet.to).state, slot)) continue;
      WorldState next = state;
      next.apply(step.packet.to, table_.react(state.worker(step.packet.to), step, state.moment));
      follow(std::move(next), "slot", step);
      return true;
    }
    return false;
  }

  // --- Early deliveries ---

  /// Some deliveries are made at once and nothing else is tried, because each order in which the
  /// delivery comes later leads to nothing that cannot be reached afterwards as well:
  ///  - Claim only marks a fork as claimed, ChildDone and the reply to a creating call only lift a
  ///    reason to keep a fork; if they send nothing, only the failure of the same fork's call can
  ///    tell whether it came before, so that order is followed too. (And a Delete that overtakes
  ///    its Claim, if the owner forgot the fork without a trace: computed, not assumed.)
  ///  - ForkAdded and ForkRefused end the wait of a child. Only AskChild can tell whether it came
  ///    before: it is then answered later or earlier, by a ChildDone that repeats another. That
  ///    the program drops its handle before is a way of its own (react_all_ways()). The messages
  ///    that they cause can be delayed at will: past the death of their sender too, as if it had
  ///    died with this packet undelivered.
  /// They add to what the invariants demand and take nothing away from it.
  bool visit_eager(const WorldState& state) {
    for (std::size_t i = 0; i < state.net.size() && !stopped(); ++i) {
      const Letter& letter = *state.net[i];
      if (!is_eager(state, letter)) continue;
      follow_delivery(state, i);
      if (state.left.drops > 0 && !answers_child(letter.packet)) {
        follow_failed_call(state, letter.packet.slot, Call::kKept);
      }
      return true;
    }
    return false;
  }

  static bool answers_child(const Packet& packet) {
    return packet.message.has_value() && (std::holds_alternative<ForkAdded>(*packet.message) ||
                                          std::holds_alternative<ForkRefused>(*packet.message));
  }

  bool is_eager(const WorldState& state, const Letter& letter) {
    const Packet& packet = letter.packet;
    const auto* claim = packet.message.has_value() ? std::get_if<Claim>(&*packet.message) : nullptr;
    const bool lifts =
        packet.kind == Packet::Kind::kCreateReply ||
        (packet.message.has_value() && std::holds_alternative<ChildDone>(*packet.message));
    if (claim == nullptr && !lifts && !answers_child(packet)) return false;
    // While the record is on its way too, its loss would be one more order.
    for (const Letter* other : state.net) {
      if (other->packet.kind == Packet::Kind::kRecord && other->packet.slot == packet.slot) {
        return false;
      }
    }
    if (answers_child(packet)) return true;
    const Node& worker = state.worker(packet.to);
    const auto& ways = table_.react_all_ways(worker, letter, state.moment);
    if (ways.size() != 1 || !ways[0].sent.empty() || !ways[0].violation.empty()) return false;
    if (claim == nullptr) return true;
    Packet gone = packet;
    gone.message = Delete{claim->rref, claim->fork, std::chrono::nanoseconds(0)};
    return commute(worker, letter, table_.letter(std::move(gone)), state.moment);
  }

  bool commute(const Node& worker, const Letter& a, const Letter& b, const Moment& moment) {
    const Effect& with_a = table_.react(worker, a, moment);
    const Effect& with_b = table_.react(worker, b, moment);
    const Effect& ab = table_.react(*with_a.next, b, moment);
    const Effect& ba = table_.react(*with_b.next, a, moment);
    return ab.next == ba.next && ab.sent == with_b.sent && ba.sent == with_a.sent &&
           ab.violation == with_b.violation && ba.violation == with_a.violation;
  }

  // --- Late faults ---

  enum class Call { kKept, kLost };

  void visit_failed_calls(const WorldState& state) {
    if (state.left.drops == 0) return;
    for (int slot = 0; slot < slots() && !stopped(); ++slot) {
      follow_failed_call(state, slot, Call::kKept);
      follow_failed_call(state, slot, Call::kLost);
    }
  }

  /// The caller learns that the call which created the slot's reference, or carried it, has failed.
  void follow_failed_call(const WorldState& state, int slot, Call call) {
    const Letter& failure = *given_up_[static_cast<std::size_t>(slot)];
    if (!state.alive(failure.packet.to)) return;
    WorldState next = state;
    --next.left.drops;
    next.moment.faulty = true;
    if (call == Call::kLost) {
      const auto place = std::find_if(next.net.begin(), next.net.end(), [&](const Letter* letter) {
        const Packet& packet = letter->packet;
        return packet.slot == slot && !packet.twin &&
               (packet.kind == Packet::Kind::kRecord || packet.kind == Packet::Kind::kCreateCall);
      });
      if (place == next.net.end()) return;
      next.net.erase(place);
    } else if (without_effect(state, failure.packet)) {
      return;
    }
    follow_ways(next, call == Call::kLost ? "drop" : "give up", failure);
  }

  void visit_late_crashes(const WorldState& state) {
    if (state.left.crashes == 0) return;
    for (int w = 0; w < workers() && !stopped(); ++w) {
      if (!state.alive(w)) continue;
      WorldState dead = crashed(state, w);
      for (std::size_t i = 0; i < dead.net.size(); ++i) {
        if (dead.net[i]->packet.kind != Packet::Kind::kLost || dead.net[i]->packet.from != w) {
          continue;
        }
        WorldState noticed = dead;
        const Letter& loss = noticed.take(i);
        follow_ways(noticed, "crash and", loss);
      }
    }
  }

  WorldState crashed(const WorldState& state, int worker) {
    WorldState next = state;
    --next.left.crashes;
    next.moment.faulty = true;
    next.workers[static_cast<std::size_t>(worker)] = &table_.node(model().dead(worker));
    next.drop_all_to(worker);
    for (int other = 0; other < workers(); ++other) next.send(loss_of(worker, other));
    return next;
  }

  const Letter& loss_of(int worker, int to) {
    Packet loss;
    loss.kind = Packet::Kind::kLost;
    loss.from = worker;
    loss.to = to;
    return table_.letter(std::move(loss));
  }

  // --- Faults at any time, without reduction ---

  void visit_packet_faults(const WorldState& state) {
    for (std::size_t i = 0; i < state.net.size() && !stopped(); ++i) {
      if (i > 0 && state.net[i] == state.net[i - 1]) continue;
      const Letter& letter = *state.net[i];
      const Packet& packet = letter.packet;
      if (state.left.drops > 0 && packet.is_call() && !packet.twin) {
        WorldState next = state;
        --next.left.drops;
        next.moment.faulty = true;
        next.send(*given_up_[static_cast<std::size_t>(packet.slot)]);
        if (packet.kind != Packet::Kind::kCreateReply) follow(next, "give up", letter);
        next.net.erase(std::find(next.net.begin(), next.net.end(), &letter));
        follow(std::move(next), "drop", letter);
      }
      if (state.left.duplicates > 0 && packet.is_message()) {
        WorldState next = state;
        --next.left.duplicates;
        Packet copy = next.take(i).packet;
        copy.twin = true;
        const Letter& twin = table_.letter(std::move(copy));
        next.send(twin);
        next.send(twin);
        follow(std::move(next), "duplicate", letter);
      }
    }
  }

  void visit_crashes(const WorldState& state) {
    if (state.left.crashes == 0) return;
    for (int w = 0; w < workers() && !stopped(); ++w) {
      if (state.alive(w)) follow(crashed(state, w), "crash by", loss_of(w, w));
    }
  }

  void visit_passing_of_time(const WorldState& state) {
    // The channel's receiver drops a second copy that is older than a tombstone; here there is no
    // channel.
    const bool twins = std::any_of(state.net.begin(), state.net.end(),
                                   [](const Letter* letter) { return letter->packet.twin; });
    if (state.left.advances == 0 || twins || stopped()) return;
    WorldState next = state;
    --next.left.advances;
    next.moment.faulty = true;
    advance(next);
    follow(std::move(next), "everywhere", tick_of(0));
  }

  const Letter& tick_of(int worker) {
    Packet tick;
    tick.kind = Packet::Kind::kTick;
    tick.from = worker;
    tick.to = worker;
    return table_.letter(std::move(tick));
  }

  void advance(WorldState& state) {
    state.moment.now += kStep;
    // Calls and replies whose deadline has passed are not looked at any more.
    for (std::size_t i = 0; i < state.net.size();) {
      if (state.net[i]->packet.is_call()) {
        state.send(*given_up_[static_cast<std::size_t>(state.take(i).packet.slot)]);
        i = 0;
      } else {
        ++i;
      }
    }
    for (int w = 0; w < workers(); ++w) {
      if (state.alive(w)) react(state, tick_of(w));
    }
  }

  // --- Endings ---

  void react(WorldState& state, const Letter& letter) {
    const int to = letter.packet.to;
    const Effect& effect = table_.react(state.worker(to), letter, state.moment);
    violate(effect.violation);
    state.apply(to, effect);
  }

  /// Nothing is left to do but to let time pass: every reference must have completed, and every
  /// table empty.
  void close(WorldState state) {
    for (int round = 0; round < 20; ++round) {
      while (!state.net.empty() && !stopped()) {
        react(state, state.take(0));
        step_given_slots(state);
      }
      state.moment.faulty = true;
      advance(state);
    }
    for (int w = 0; w < workers(); ++w) {
      if (state.alive(w)) judge_end(state.worker(w).state, w);
    }
  }

  void step_given_slots(WorldState& state) {
    for (int slot = 0; slot < slots(); ++slot) {
      const Slot& plan = model().scenario().slots[static_cast<std::size_t>(slot)];
      const WorkerState& worker = state.worker(plan.worker).state;
      const Handle::Status status = worker.handles[static_cast<std::size_t>(slot)].status;
      if (plan.parent >= 0 && status != Handle::Status::kWaiting &&
          model().can_step(worker, slot)) {
        react(state, table_.step_of(slot));
      }
    }
  }

  void judge_end(const WorkerState& worker, int w) {
    for (std::size_t slot = 0; slot < worker.handles.size(); ++slot) {
      if (worker.handles[slot].status == Handle::Status::kWaiting) {
        violate(absl::StrCat("the reference of slot ", slot, " neither worked nor failed"));
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

  const Reduction reduction_;
  ReactionTable table_;
  const StateVisitor& visitor_;
  std::vector<const Letter*> given_up_;  // by slot
  absl::flat_hash_set<std::uint64_t> visited_;
  std::vector<Event> trace_;
  std::vector<std::string> violating_trace_;
  Exploration result_;
};

}  // namespace

Exploration explore(const Scenario& scenario, const Faults& faults, Reduction reduction,
                    const StateVisitor& visitor) {
  const Reduction possible = faults.advances > 0 ? Reduction::kNone : reduction;
  return Explorer(scenario, faults, possible, visitor).result();
}

}  // namespace sinew::internal::ledger
