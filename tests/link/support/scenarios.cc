#include "sinew/tests/link/support/scenarios.h"

#include <utility>

namespace sinew::internal::link_model {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kCost = LinkLanes::kFrameCostBytes;

Settings two_workers() {
  Settings settings;
  settings.terms = {seconds(2), seconds(10)};
  return settings;
}

CallPlan from(int worker) {
  CallPlan plan;
  plan.from = worker;
  plan.to = 1 - worker;
  return plan;
}

CallPlan large(CallPlan plan) {
  plan.large = true;
  plan.bytes = 100;
  return plan;
}

CallPlan cancelled(CallPlan plan) {
  plan.cancellable = true;
  return plan;
}

CallPlan within(CallPlan plan, int outer) {
  plan.within = outer;
  return plan;
}

Scenario scenario(const char* name, Settings settings, std::vector<CallPlan> calls, Faults faults) {
  Scenario scenario;
  scenario.name = name;
  settings.calls = std::move(calls);
  scenario.settings = std::move(settings);
  scenario.faults = faults;
  return scenario;
}

Scenario surviving(Scenario scenario) {
  scenario.survives = true;
  return scenario;
}

Scenario from_nothing(Scenario scenario) {
  scenario.connected = false;
  return scenario;
}

Faults faults(int Faults::*kind, int count = 1) {
  Faults faults;
  faults.*kind = count;
  return faults;
}

Faults both(Faults a, const Faults& b) {
  a.breaks += b.breaks;
  a.swallowed += b.swallowed;
  a.duplicates += b.duplicates;
  a.late += b.late;
  a.swaps += b.swaps;
  a.crashes += b.crashes;
  a.asks += b.asks;
  a.leaves += b.leaves;
  a.ticks += b.ticks;
  a.sleeps += b.sleeps;
  return a;
}

/// Room for two requests, one reply, one control frame.
Settings small_windows() {
  Settings settings = two_workers();
  settings.limits.request_window_bytes = 2 * kCost;
  settings.limits.reply_window_bytes = kCost;
  settings.limits.control_window_bytes = kCost;
  return settings;
}

void add_delivery(std::vector<Scenario>& all, int level) {
  const std::vector<CallPlan> one{cancelled(from(0)), large(from(1))};
  const std::vector<CallPlan> two{cancelled(from(0)), large(from(0)), from(1), large(from(1))};
  const Faults breaks = faults(&Faults::breaks);
  const Faults ticks = faults(&Faults::ticks);
  const auto add = [&](const char* name, const std::vector<CallPlan>& calls, const Faults& each) {
    all.push_back(surviving(scenario(name, two_workers(), calls, each)));
  };
  add("calls", two, {});
  add("calls_that_pass_each_other", {cancelled(from(0)), from(0), from(1)},
      faults(&Faults::swaps, 2));
  add("repetitions", one, faults(&Faults::duplicates, 2));
  add("a_break", one, both(breaks, ticks));
  add("a_break_and_a_repetition", one, both(breaks, faults(&Faults::duplicates)));
  add("a_late_packet", {from(0), from(1)}, both(breaks, faults(&Faults::late)));
  add("two_breaks", {cancelled(from(0))}, both(faults(&Faults::breaks, 2), ticks));
  all.push_back(
      surviving(scenario("a_connection_that_swallows", two_workers(), {cancelled(from(0)), from(1)},
                         both(faults(&Faults::swallowed), faults(&Faults::ticks, 3)))));
  if (level == 0) return;
  add("a_break_that_takes_long", one, both(breaks, faults(&Faults::ticks, 2)));
  add("a_late_packet_of_a_large_call", one, both(both(breaks, faults(&Faults::late)), ticks));
  add("two_breaks_among_many", {cancelled(from(0)), from(1)},
      both(faults(&Faults::breaks, 2), ticks));
  add("two_breaks_and_large_calls", one, both(faults(&Faults::breaks, 2), ticks));
  add("a_break_among_many", two, breaks);
  add("everything", one,
      both(both(faults(&Faults::breaks, 2), faults(&Faults::duplicates)),
           both(faults(&Faults::late), ticks)));
}

void add_connections(std::vector<Scenario>& all, int level) {
  const std::vector<CallPlan> each{from(0), from(1)};
  all.push_back(surviving(
      from_nothing(scenario("both_open", two_workers(), each, faults(&Faults::ticks, 2)))));
  Settings at_once = two_workers();
  at_once.accepted_is_up = true;
  all.push_back(surviving(from_nothing(
      scenario("both_open_and_are_up_at_once", at_once, each, faults(&Faults::ticks, 2)))));
  all.push_back(
      surviving(from_nothing(scenario("both_open_and_one_is_late", two_workers(), {from(0)},
                                      both(faults(&Faults::ticks, 1), faults(&Faults::late))))));
  all.push_back(surviving(from_nothing(
      scenario("both_open_and_one_breaks", two_workers(), each, faults(&Faults::breaks)))));
  for (const int hidden : {0, 1}) {
    for (const Reach reach : {Reach::kSwallowed, Reach::kRefused}) {
      const bool swallowed = reach == Reach::kSwallowed;
      Settings settings = two_workers();
      settings.reach = {Reach::kAnybody, Reach::kAnybody};
      settings.reach[static_cast<std::size_t>(hidden)] = reach;
      const char* const reaching[] = {"the_smaller_is_behind_a_firewall", "the_smaller_is_refused",
                                      "the_larger_is_behind_a_firewall", "the_larger_is_refused"};
      const char* const back[] = {"the_smaller_cannot_come_back", "the_smaller_is_refused_later",
                                  "the_larger_cannot_come_back", "the_larger_is_refused_later"};
      const int name = 2 * hidden + (swallowed ? 0 : 1);
      // Who calls somebody that it cannot reach is reached by it, before the calls would end as
      // those that reach nobody do.
      Scenario reached = surviving(
          from_nothing(scenario(reaching[name], settings, each, faults(&Faults::ticks, 2))));
      reached.tick = milliseconds(300);
      all.push_back(reached);
      Scenario later =
          surviving(scenario(back[name], settings, {from(0)},
                             both(faults(&Faults::ticks, 6), faults(&Faults::breaks))));
      later.tick = milliseconds(300);
      all.push_back(later);
    }
  }
  const Faults crash = both(faults(&Faults::crashes), faults(&Faults::ticks, 1));
  all.push_back(
      scenario("a_crash", two_workers(), {cancelled(from(0)), from(1)}, faults(&Faults::crashes)));
  all.push_back(scenario("a_goodbye", two_workers(), {cancelled(from(0)), from(1)},
                         both(faults(&Faults::leaves), faults(&Faults::late))));
  all.push_back(from_nothing(
      scenario("a_crash_at_first_contact", two_workers(), each, faults(&Faults::crashes))));
  Settings queued = two_workers();
  queued.takes_turns = true;
  all.push_back(from_nothing(scenario("both_wait_for_a_turn", queued, each,
                                      both(faults(&Faults::breaks), faults(&Faults::late)))));
  all.push_back(from_nothing(
      scenario("a_crash_while_both_wait_for_a_turn", queued, each, faults(&Faults::crashes))));
  const Faults asks = faults(&Faults::asks, 2);
  all.push_back(
      from_nothing(scenario("who_waits_for_a_turn_is_asked_to_come", queued, each, asks)));
  all.push_back(surviving(scenario("who_has_lost_a_connection_is_asked_to_come", two_workers(),
                                   each, both(asks, faults(&Faults::breaks)))));
  Settings asked = queued;
  asked.asks_for_turns = true;
  all.push_back(from_nothing(scenario("who_is_asked_to_come_needs_no_turn", asked, each, {})));
  Settings proving = two_workers();
  proving.proves_death = true;
  all.push_back(scenario("a_crash_that_is_proved", proving, {cancelled(from(0)), from(1)},
                         both(faults(&Faults::crashes), faults(&Faults::late))));
  all.push_back(from_nothing(scenario("a_crash_at_first_contact_that_is_proved", proving, each,
                                      faults(&Faults::crashes))));
  if (level == 0) return;
  all.push_back(
      surviving(from_nothing(scenario("both_open_for_long", two_workers(), each,
                                      both(faults(&Faults::ticks, 3), faults(&Faults::late))))));
  all.push_back(
      surviving(from_nothing(scenario("both_open_for_long_and_one_breaks", two_workers(), each,
                                      both(faults(&Faults::ticks, 2), faults(&Faults::breaks))))));
  all.push_back(
      scenario("a_crash_among_many", two_workers(), {cancelled(from(0)), from(1), from(1)}, crash));
  all.push_back(
      scenario("a_crash_and_a_break", two_workers(), each, both(crash, faults(&Faults::breaks))));
}

void add_windows(std::vector<Scenario>& all, int level) {
  // Each end fills the other's room with calls whose handlers call back.
  Settings slow = small_windows();
  slow.handlers_take_time = true;
  std::vector<CallPlan> filling{from(0), from(1)};
  filling.push_back(within(from(1), 0));
  filling.push_back(within(from(0), 1));
  all.push_back(surviving(scenario("both_fill_each_other", slow, filling, {})));
  all.push_back(surviving(
      scenario("rooms_and_a_break", slow, {from(1), from(1), from(1)}, faults(&Faults::breaks))));
  all.push_back(surviving(scenario("replies_beyond_the_window", small_windows(),
                                   {from(0), from(0), from(0), cancelled(from(0))}, {})));
  // A handler that runs for long pins nothing but itself.
  slow.limits = two_workers().limits;
  all.push_back(surviving(scenario("a_long_handler", slow, {cancelled(from(0)), large(from(0))},
                                   faults(&Faults::breaks))));
  if (level == 0) return;
  Settings tiny = slow;
  tiny.limits = small_windows().limits;
  filling.push_back(from(0));
  filling.push_back(from(1));
  all.push_back(surviving(
      scenario("both_fill_each_other_and_it_breaks", tiny, filling, faults(&Faults::breaks))));
}

void add_leases(std::vector<Scenario>& all, int level) {
  const auto add = [&](const char* name, std::vector<double> rates, std::vector<LeaseTerms> terms,
                       Faults each) {
    Settings settings = two_workers();
    settings.terms = {milliseconds(1000), seconds(5)};
    settings.own_terms = std::move(terms);
    settings.clock_rates = std::move(rates);
    // Then an end may be up whose own hello is lost.
    settings.accepted_is_up = each.breaks > 0;
    // Each further fault multiplies the states.
    each.ticks = level != 0 ? 12 : each.breaks + each.sleeps == 0 ? 8 : 5;
    Scenario made = scenario(name, settings, {}, each);
    made.tick = milliseconds(1250);
    made.most_on_their_way = 1;
    all.push_back(made);
  };
  const Faults swallowed = faults(&Faults::swallowed);
  const LeaseTerms short_terms{milliseconds(600), seconds(3)};
  const LeaseTerms long_terms{milliseconds(1000), seconds(6)};
  add("a_slow_and_a_fast_clock", {0.9, 1.1}, {}, swallowed);
  add("a_fast_and_a_slow_clock", {1.1, 0.9}, {}, swallowed);
  add("a_short_and_a_long_lease", {1.1, 0.9}, {short_terms, long_terms}, swallowed);
  add("a_long_and_a_short_lease", {1.1, 0.9}, {long_terms, short_terms}, swallowed);
  add("a_lease_over_a_break", {0.9, 1.1}, {}, both(swallowed, faults(&Faults::breaks)));
  add("a_lease_over_a_break_the_other_way", {1.1, 0.9}, {},
      both(swallowed, faults(&Faults::breaks)));
  add("who_slept_over_the_end", {}, {},
      both(swallowed, faults(&Faults::sleeps, level == 0 ? 1 : 3)));
}

}  // namespace

std::vector<Scenario> scenarios(int level) {
  std::vector<Scenario> all;
  add_delivery(all, level);
  add_connections(all, level);
  add_windows(all, level);
  add_leases(all, level);
  return all;
}

}  // namespace sinew::internal::link_model
