#include "sinew/tests/link/support/explorer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sinew::internal::link_model {
namespace {

using std::chrono::nanoseconds;

// Of the states that are no endings, one of so many is brought to its end as well.
constexpr std::uint64_t kSettledOneOf = 64;

struct Event {
  enum class What : std::uint8_t {
    kHello,
    kAnswer,
    kDeliver,
    kDeliverTwice,
    kPayloads,
    kNotice,
    kStart,
    kCancel,
    kStartHandler,
    kFinishHandler,
    kRestart,
    kBreak,
    kSwallow,
    kCrash,
    kTick,
    kSleep,
  };
  What what = What::kHello;
  std::size_t c = 0;
  int v = 0;
  Lane lane = Lane::kControl;
  std::size_t place = 0;
  bool late = false;

  std::string text() const {
    static const char* const names[] = {
        "hello",  "answer", "deliver", "deliver twice", "payloads", "notice", "start", "cancel",
        "handle", "reply",  "restart", "break",         "swallow",  "crash",  "tick",  "sleep"};
    return absl::StrCat(names[static_cast<int>(what)], " ", c, "/", v,
                        lane == Lane::kCalls ? "c" : "", place == 0 ? "" : " passing",
                        late ? " late" : "");
  }
};

/// What can happen next that is no fault.
std::vector<Event> steps_of(const World& world) {
  std::vector<Event> steps;
  for (std::size_t c = 0; c < world.connections().size(); ++c) {
    const Connection& connection = world.connections()[c];
    if (world.can_deliver_hello(c)) {
      steps.push_back(
          {Event::What::kHello, c, 0, Lane::kControl, 0, connection.views[0] == View::kClosed});
    }
    if (world.can_deliver_answer(c)) steps.push_back({Event::What::kAnswer, c});
    for (const int v : {0, 1}) {
      const bool late = connection.views[v] == View::kClosed;
      for (const Lane lane : {Lane::kControl, Lane::kCalls}) {
        if (world.can_deliver(c, v, lane, 0)) {
          steps.push_back({Event::What::kDeliver, c, v, lane, 0, late});
        }
      }
      for (std::size_t place = 0; world.can_deliver_payloads(c, v, place); ++place) {
        steps.push_back({Event::What::kPayloads, c, v, Lane::kCalls, place, late});
      }
      if (world.can_notice(c, v)) steps.push_back({Event::What::kNotice, c, v});
    }
  }
  for (std::size_t c = 0; c < world.calls().size(); ++c) {
    const int call = static_cast<int>(c);
    if (world.can_start(call)) steps.push_back({Event::What::kStart, c});
    if (!world.settings().handlers_take_time) continue;
    if (world.can_start_handler(call)) steps.push_back({Event::What::kStartHandler, c});
    if (world.can_finish_handler(call)) steps.push_back({Event::What::kFinishHandler, c});
  }
  for (std::size_t w = 0; w < world.workers().size(); ++w) {
    if (!world.workers()[w].alive) steps.push_back({Event::What::kRestart, w});
  }
  return steps;
}

void tick(World& world, nanoseconds time, int sleeper) {
  const int workers = static_cast<int>(world.workers().size());
  const Time end = time == nanoseconds(0) ? Time::max() : world.now() + time;
  while (true) {
    Time next = Time::max();
    for (int w = 0; w < workers; ++w) {
      if (w != sleeper) next = std::min(next, world.wake(w));
    }
    const bool over = next > end || next == Time::max();
    world.advance_to(over ? (end == Time::max() ? world.now() : end) : next);
    for (int w = 0; w < workers; ++w) {
      if (w != sleeper && world.wake(w) <= world.now()) world.poll(w);
    }
    if (over || time == nanoseconds(0)) return;
  }
}

void happen(World& world, const Event& event, nanoseconds time) {
  const int call = static_cast<int>(event.c);
  switch (event.what) {
    case Event::What::kHello:
      return world.deliver_hello(event.c);
    case Event::What::kAnswer:
      return world.deliver_answer(event.c);
    case Event::What::kDeliver:
      return world.deliver(event.c, event.v, event.lane, event.place);
    case Event::What::kDeliverTwice:
      return world.deliver(event.c, event.v, event.lane, event.place, World::Copies::kTwo);
    case Event::What::kPayloads:
      return world.deliver_payloads(event.c, event.v, event.place);
    case Event::What::kNotice:
      return world.notice(event.c, event.v);
    case Event::What::kStart:
      return world.start(call);
    case Event::What::kCancel:
      return world.cancel(call);
    case Event::What::kStartHandler:
      return world.start_handler(call);
    case Event::What::kFinishHandler:
      return world.finish_handler(call);
    case Event::What::kRestart:
      return world.restart(call);
    case Event::What::kBreak:
      return world.break_connection(event.c);
    case Event::What::kSwallow:
      return world.swallow(event.c);
    case Event::What::kCrash:
      return world.crash(call);
    case Event::What::kTick:
      return tick(world, time, -1);
    case Event::What::kSleep:
      return tick(world, time, event.v);
  }
}

/// Runs what can happen, in order, once each; whether anything did.
bool run_all(World& world) {
  const std::vector<Event> steps = steps_of(world);
  for (const Event& step : steps) {
    // Whatever happens may make others impossible, and moves places.
    const std::vector<Event> now = steps_of(world);
    const bool possible = std::any_of(
        now.begin(), now.end(), [&](const Event& event) { return event.text() == step.text(); });
    if (possible && !step.late) happen(world, step, nanoseconds(0));
    if (!world.violation().empty()) return true;
  }
  return std::any_of(steps.begin(), steps.end(), [](const Event& step) { return !step.late; });
}

class Explorer {
 public:
  explicit Explorer(const Scenario& scenario) : scenario_(scenario) {
    World world(scenario.settings);
    if (scenario.connected) {
      // A call of its own makes the connection, and is over when the exploration begins.
      world.start(world.add_call({}));
      for (int i = 0; i < 20 && run_all_but_programs(world); ++i) {
      }
    }
    visit(world, scenario.faults);
    if (!result_.violation.empty()) {
      result_.violation = absl::StrCat(result_.violation, "\n  in ", scenario.name,
                                       "\n  after: ", absl::StrJoin(violating_trace_, "; "));
    }
  }

  Exploration result() const { return result_; }

 private:
  static bool run_all_but_programs(World& world) {
    for (const Event& step : steps_of(world)) {
      if (step.what == Event::What::kStart) continue;
      happen(world, step, nanoseconds(0));
      return true;
    }
    return false;
  }

  bool stopped() const { return !result_.violation.empty(); }

  void violate(const std::string& what) {
    if (stopped() || what.empty()) return;
    result_.violation = what;
    for (const Event& event : trace_) violating_trace_.push_back(event.text());
  }

  static std::uint64_t key(const World& world, const Faults& left) {
    Digest digest;
    digest.add(world.digest());
    for (const int budget : {left.breaks, left.swallowed, left.duplicates, left.late, left.swaps,
                             left.crashes, left.ticks, left.sleeps}) {
      digest.add(static_cast<std::uint64_t>(budget));
    }
    return digest.value();
  }

  void visit(const World& world, const Faults& left) {
    const std::uint64_t seen_as = key(world, left);
    if (stopped() || !visited_.insert(seen_as).second) return;
    ++result_.states;
    violate(world.violation());
    if (scenario_.survives) {
      for (const End& end : world.ends()) {
        if (end.link.ended()) violate("a link has ended without a reason");
      }
    }
    if (stopped()) return;
    const std::vector<Event> steps = steps_of(world);
    bool any = false;
    for (const Event& step : steps) {
      if (step.late && left.late == 0) continue;
      any = true;
      Faults rest = left;
      if (step.late) --rest.late;
      follow(world, rest, step);
    }
    visit_programs(world, left);
    visit_faults(world, left, steps);
    if (!any || seen_as % kSettledOneOf == 0) settle_from(world);
  }

  void visit_programs(const World& world, const Faults& left) {
    for (std::size_t c = 0; c < world.calls().size(); ++c) {
      if (world.can_cancel(static_cast<int>(c))) follow(world, left, {Event::What::kCancel, c});
    }
  }

  void visit_faults(const World& world, const Faults& left, const std::vector<Event>& steps) {
    for (const Event& step : steps) {
      if (step.what != Event::What::kDeliver || step.late) continue;
      const Connection& connection = world.connections()[step.c];
      const auto& lane = connection.lanes[step.v][static_cast<std::size_t>(step.lane)];
      if (left.duplicates > 0 && !lane.front().is_large()) {
        Event twice = step;
        twice.what = Event::What::kDeliverTwice;
        follow_fault(world, left, &Faults::duplicates, twice);
      }
      if (left.swaps > 0 && lane.size() > 1) {
        Event passing = step;
        passing.place = 1;
        follow_fault(world, left, &Faults::swaps, passing);
      }
    }
    for (std::size_t c = 0; c < world.connections().size(); ++c) {
      if (!world.can_break(c)) continue;
      if (left.breaks > 0) follow_fault(world, left, &Faults::breaks, {Event::What::kBreak, c});
      if (left.swallowed > 0) {
        follow_fault(world, left, &Faults::swallowed, {Event::What::kSwallow, c});
      }
    }
    if (left.crashes > 0) {
      for (std::size_t w = 0; w < world.workers().size(); ++w) {
        if (world.workers()[w].alive) {
          follow_fault(world, left, &Faults::crashes, {Event::What::kCrash, w});
        }
      }
    }
    if (left.ticks > 0) follow_fault(world, left, &Faults::ticks, {Event::What::kTick});
    if (left.sleeps > 0) {
      for (const int sleeper : {0, 1}) {
        follow_fault(world, left, &Faults::sleeps, {Event::What::kSleep, 0, sleeper});
      }
    }
  }

  void follow_fault(const World& world, Faults left, int Faults::*budget, const Event& event) {
    --(left.*budget);
    follow(world, left, event);
  }

  void follow(const World& world, const Faults& left, const Event& event) {
    if (stopped()) return;
    ++result_.transitions;
    trace_.push_back(event);
    World next(world);
    next.keep_late_packets(left.late > 0 || event.late);
    happen(next, event, scenario_.tick);
    visit(next, left);
    trace_.pop_back();
  }

  void settle_from(const World& world) {
    if (stopped()) return;
    ++result_.endings;
    World end(world);
    end.keep_late_packets(false);
    violate(settle(end));
    if (scenario_.survives) {
      for (const End& each : end.ends()) {
        if (each.link.ended()) violate("a link has ended without a reason");
      }
    }
    result_.longest = std::max(result_.longest, nanoseconds(end.now() - world.now()));
  }

  const Scenario& scenario_;
  absl::flat_hash_set<std::uint64_t> visited_;
  std::vector<Event> trace_;
  std::vector<std::string> violating_trace_;
  Exploration result_;
};

}  // namespace

std::string settle(World& world) {
  std::chrono::nanoseconds lease = world.settings().terms.lease;
  for (const LeaseTerms& terms : world.settings().own_terms) lease = std::max(lease, terms.lease);
  const Time end = world.now() + 4 * lease + std::chrono::seconds(30);
  while (world.now() < end && world.violation().empty()) {
    if (run_all(world)) continue;
    if (world.unrest().empty()) return world.violation();
    const Time before = world.now();
    tick(world, nanoseconds(0), -1);
    if (world.now() == before && !run_all(world)) break;
  }
  return world.violation().empty() ? world.unrest() : world.violation();
}

Exploration explore(const Scenario& scenario) { return Explorer(scenario).result(); }

}  // namespace sinew::internal::link_model
