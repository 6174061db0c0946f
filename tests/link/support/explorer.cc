#include "sinew/tests/link/support/explorer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/tests/link/support/events.h"

namespace sinew::internal::link_model {
namespace {

using std::chrono::nanoseconds;

// Of the states that are no endings, one of so many is brought to its end as well.
constexpr std::uint64_t kSettledOneOf = 64;

class Explorer {
 public:
  explicit Explorer(const Scenario& scenario) : scenario_(scenario) {
    World world(scenario.settings);
    if (scenario.connected) {
      // A call of its own makes the connection, and is over when the exploration begins.
      CallPlan plan;
      const auto& reach = scenario.settings.reach;
      if (!reach.empty() && reach[0] != Reach::kAnybody) std::swap(plan.from, plan.to);
      world.start(world.add_call(plan));
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
                             left.crashes, left.asks, left.leaves, left.ticks, left.sleeps}) {
      digest.add(static_cast<std::uint64_t>(budget));
    }
    return digest.value();
  }

  void visit(const World& world, const Faults& left) {
    const std::uint64_t seen_as = key(world, left);
    if (stopped() || !visited_.insert(seen_as).second) return;
    ++result_.states;
    violate(world.violation());
    judge_survival(world);
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

  void judge_survival(const World& world) {
    if (!scenario_.survives) return;
    for (const End& end : world.ends()) {
      if (end.link.ended()) violate("a link has ended without a reason");
    }
    for (const Call& call : world.calls()) {
      if (call.outcome == Call::Outcome::kUnreachable ||
          (call.outcome == Call::Outcome::kDidNotRun && !call.frames[0].given_up)) {
        violate("a call has ended without a reason");
      }
    }
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
    for (std::size_t e = 0; left.asks > 0 && e < world.ends().size(); ++e) {
      if (world.can_ask(e)) follow_fault(world, left, &Faults::asks, {Event::What::kAsk, e});
    }
    for (const int leaver : {0, 1}) {
      if (left.leaves == 0 || !world.can_leave(leaver, 1 - leaver)) continue;
      follow_fault(world, left, &Faults::leaves,
                   {Event::What::kLeave, static_cast<std::size_t>(leaver)});
    }
    if (is_crowded(world)) return;
    if (left.ticks > 0) follow_fault(world, left, &Faults::ticks, {Event::What::kTick});
    if (left.sleeps > 0) {
      for (const int sleeper : {0, 1}) {
        follow_fault(world, left, &Faults::sleeps, {Event::What::kSleep, 0, sleeper});
      }
    }
  }

  bool is_crowded(const World& world) const {
    for (const Connection& connection : world.connections()) {
      for (const auto& lanes : connection.lanes) {
        for (const auto& lane : lanes) {
          if (!connection.black && lane.size() > scenario_.most_on_their_way) return true;
        }
      }
    }
    return false;
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
    judge_survival(end);
    result_.longest = std::max(result_.longest, nanoseconds(end.now() - world.now()));
  }

  const Scenario& scenario_;
  absl::flat_hash_set<std::uint64_t> visited_;
  std::vector<Event> trace_;
  std::vector<std::string> violating_trace_;
  Exploration result_;
};

}  // namespace

Exploration explore(const Scenario& scenario) { return Explorer(scenario).result(); }

}  // namespace sinew::internal::link_model
