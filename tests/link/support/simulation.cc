#include "sinew/tests/link/support/simulation.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/tests/link/support/events.h"
#include "sinew/tests/support/split_mix64.h"

namespace sinew::internal::link_model {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr int kWorkers = 5;
constexpr int kTurns = 400;
constexpr std::size_t kMostCalls = 60;

class Random : public testing::SplitMix64 {
 public:
  using SplitMix64::SplitMix64;
  int below(int bound) {
    return static_cast<int>(SplitMix64::below(static_cast<std::size_t>(bound)));
  }
};

Settings settings_of(Random& random) {
  Settings settings;
  settings.workers = kWorkers;
  settings.handlers_take_time = true;
  settings.terms = {milliseconds(1000), seconds(5)};
  const LeaseTerms terms[] = {
      settings.terms, {milliseconds(500), seconds(3)}, {seconds(1), seconds(6)}};
  const bool same_terms = random.chance(50);
  const bool true_clocks = random.chance(50);
  for (int w = 0; w < kWorkers; ++w) {
    settings.own_terms.push_back(same_terms ? settings.terms : terms[random.below(3)]);
    settings.clock_rates.push_back(true_clocks ? 1.0 : 0.9 + 0.01 * random.below(21));
    // Nobody can open a connection to somebody else from behind some firewalls.
    settings.reach.push_back(random.chance(95)   ? Reach::kAnybody
                             : random.chance(50) ? Reach::kSwallowed
                                                 : Reach::kRefused);
  }
  settings.takes_turns = random.chance(50);
  settings.accepted_is_up = random.chance(50);
  if (random.chance(50)) {
    settings.limits.request_window_bytes = 1000;
    settings.limits.reply_window_bytes = 1000;
    settings.limits.control_window_bytes = 1000;
  }
  return settings;
}

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed) : random_(seed), world_(settings_of(random_)) {
    world_.keep_late_packets(random_.chance(50));
    for (int turn = 0; turn < kTurns && world_.violation().empty(); ++turn) take_turn();
    report_.violation = settle(world_);
    count();
  }

  const SimulationReport& report() const { return report_; }

 private:
  void take_turn() {
    pass_time();
    if (random_.chance(15)) strike();
    if (random_.chance(30)) call();
    if (random_.chance(15)) cancel();
    const int moves = random_.below(8);
    for (int i = 0; i < moves && world_.violation().empty(); ++i) move();
  }

  bool runs(int worker) const { return until_[worker] <= world_.now(); }
  bool is_cut(int from, int to) const { return cuts_[from][to] > world_.now(); }

  void pass_time() {
    const int kind = random_.below(20);
    const milliseconds most = kind < 14   ? milliseconds(5)
                              : kind < 19 ? milliseconds(200)
                                          : milliseconds(1500);
    const nanoseconds time = most * random_.below(100) / 100;
    const Time end = world_.now() + time;
    while (true) {
      Time next = world_.next_drop();
      for (int w = 0; w < kWorkers; ++w) {
        // Whoever does not run does what it has to when it runs again.
        const Time wake = std::max(world_.wake(w), until_[w]);
        if (world_.wake(w) != Time::max()) next = std::min(next, wake);
      }
      const bool over = next > end;
      world_.advance_to(over ? end : next);
      for (int w = 0; w < kWorkers; ++w) {
        if (runs(w) && world_.wake(w) <= world_.now()) world_.poll(w);
      }
      if (over || !world_.violation().empty()) return;
    }
  }

  void strike() {
    const Time now = world_.now();
    const int worker = random_.below(kWorkers);
    const int other = random_.below(kWorkers);
    const std::size_t connections = world_.connections().size();
    const auto c = connections == 0
                       ? 0
                       : static_cast<std::size_t>(random_.below(static_cast<int>(connections)));
    switch (random_.below(10)) {
      case 0:
      case 1:
      case 2:
        if (connections != 0 && world_.can_break(c)) world_.break_connection(c);
        return;
      case 3:
        if (connections != 0 && world_.can_break(c)) world_.swallow(c);
        return;
      case 4:
        cuts_[worker][other] = now + milliseconds(random_.below(8000));
        if (random_.chance(50)) cuts_[other][worker] = cuts_[worker][other];
        ++report_.cuts;
        return;
      case 5:
        until_[worker] = now + milliseconds(random_.below(8000));
        ++report_.suspensions;
        return;
      case 6:
        // One side of the network from the other.
        for (int a = 0; a < kWorkers; ++a) {
          for (int b = 0; b < kWorkers; ++b) {
            if ((a <= worker) != (b <= worker)) cuts_[a][b] = now + seconds(3);
          }
        }
        ++report_.cuts;
        return;
      case 7:
        if (random_.chance(30) && runs(worker) && world_.can_leave(worker, other)) {
          world_.leave(worker, other);
          ++report_.leaves;
        }
        return;
      case 8:
        ask();
        return;
      default:
        if (!world_.workers()[static_cast<std::size_t>(worker)].alive || !random_.chance(30))
          return;
        world_.crash(worker);
        until_[worker] = now;
        ++report_.crashes;
        return;
    }
  }

  void ask() {
    const std::size_t ends = world_.ends().size();
    if (ends == 0) return;
    const auto e = static_cast<std::size_t>(random_.below(static_cast<int>(ends)));
    if (runs(world_.ends()[e].worker) && world_.can_ask(e)) world_.ask(e);
  }

  void call() {
    if (world_.calls().size() >= kMostCalls) return;
    CallPlan plan;
    plan.from = random_.below(kWorkers);
    plan.to = (plan.from + 1 + random_.below(kWorkers - 1)) % kWorkers;
    plan.bytes = static_cast<std::uint64_t>(random_.below(700));
    plan.large = random_.chance(20);
    plan.reply_bytes = static_cast<std::uint64_t>(random_.below(700));
    plan.large_reply = random_.chance(20);
    plan.cancellable = random_.chance(30);
    const int made = world_.add_call(plan);
    if (!random_.chance(40)) return;
    std::swap(plan.from, plan.to);
    plan.within = made;
    world_.add_call(plan);
  }

  void cancel() {
    if (world_.calls().empty()) return;
    const int c = random_.below(static_cast<int>(world_.calls().size()));
    if (world_.can_cancel(c) && runs(world_.calls()[static_cast<std::size_t>(c)].plan.from)) {
      world_.cancel(c);
    }
  }

  /// Whether nothing keeps the event from happening: the network, or that somebody does not run.
  bool is_free(const Event& event) {
    switch (event.what) {
      case Event::What::kStart:
        return runs(world_.calls()[event.c].plan.from);
      case Event::What::kStartHandler:
      case Event::What::kFinishHandler:
        return runs(world_.calls()[event.c].plan.to);
      case Event::What::kTurn:
        return runs(world_.ends()[event.c].worker) && random_.chance(30);
      case Event::What::kRestart:
        return random_.chance(5);
      default:
        break;
    }
    const Connection& connection = world_.connections()[event.c];
    const int opener = world_.ends()[static_cast<std::size_t>(connection.ends[0])].worker;
    const int acceptor = connection.to_worker;
    const bool to_acceptor =
        event.what == Event::What::kHello || (event.what != Event::What::kAnswer && event.v == 1);
    const int from = to_acceptor ? opener : acceptor;
    const int to = to_acceptor ? acceptor : opener;
    if (event.what == Event::What::kPayloads && !random_.chance(30)) return false;
    const bool needs_network = event.what != Event::What::kNotice || !connection.broken;
    return runs(to) && !(needs_network && is_cut(from, to));
  }

  void move() {
    std::vector<Event> steps = steps_of(world_);
    for (int tries = 0; tries < 8 && !steps.empty(); ++tries) {
      const auto chosen = static_cast<std::size_t>(random_.below(static_cast<int>(steps.size())));
      Event event = steps[chosen];
      if (!is_free(event)) continue;
      if (event.what == Event::What::kDeliver) {
        const auto& lane =
            world_.connections()[event.c].lanes[event.v][static_cast<std::size_t>(event.lane)];
        if (lane.size() > 1 && random_.chance(10)) event.place = 1;
      }
      happen(world_, event, nanoseconds(0));
      ++report_.events;
      return;
    }
  }

  void count() {
    for (const Call& call : world_.calls()) {
      if (!call.started()) continue;
      ++report_.calls;
      report_.replies += call.outcome == Call::Outcome::kReply ? 1 : 0;
      report_.cancelled += call.outcome == Call::Outcome::kCancelled ? 1 : 0;
      report_.lost += call.outcome == Call::Outcome::kLinkEnded ? 1 : 0;
    }
    for (const End& end : world_.ends()) {
      report_.links_ended += !end.dead && end.link.ended() ? 1 : 0;
      report_.connections += end.up != ConnectionName{} ? 1 : 0;
    }
  }

  Random random_;
  World world_;
  // Until when a worker does not run, and nothing comes from the first to the second.
  Time until_[kWorkers] = {};
  Time cuts_[kWorkers][kWorkers] = {};
  SimulationReport report_;
};

}  // namespace

void SimulationReport::add(const SimulationReport& other) {
  events += other.events;
  calls += other.calls;
  replies += other.replies;
  cancelled += other.cancelled;
  lost += other.lost;
  connections += other.connections;
  crashes += other.crashes;
  leaves += other.leaves;
  suspensions += other.suspensions;
  cuts += other.cuts;
  links_ended += other.links_ended;
}

SimulationReport simulate(std::uint64_t seed) { return Simulation(seed).report(); }

}  // namespace sinew::internal::link_model
