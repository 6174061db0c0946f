#include "sinew/tests/link/support/events.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sinew::internal::link_model {

using std::chrono::nanoseconds;

namespace {

// In which something happened, but no time passed.
constexpr int kMostIdleTicks = 100;

}  // namespace

std::string Event::text() const {
  static const char* const names[] = {
      "hello", "answer",  "join",  "deliver", "deliver twice", "payloads", "notice",
      "turn",  "ask",     "start", "cancel",  "handle",        "reply",    "restart",
      "break", "swallow", "crash", "leave",   "proof",         "tick",     "sleep"};
  return absl::StrCat(names[static_cast<int>(what)], " ", c, "/", v,
                      lane == Lane::kCalls ? "c" : "", place == 0 ? "" : " passing",
                      late ? " late" : "");
}

std::vector<Event> steps_of(const World& world) {
  std::vector<Event> steps;
  for (std::size_t c = 0; c < world.connections().size(); ++c) {
    const Connection& connection = world.connections()[c];
    if (world.can_deliver_hello(c)) {
      steps.push_back(
          {Event::What::kHello, c, 0, Lane::kControl, 0, connection.views[0] == View::kClosed});
    }
    if (world.can_deliver_answer(c)) steps.push_back({Event::What::kAnswer, c});
    if (world.can_deliver_join(c)) steps.push_back({Event::What::kJoin, c, 1});
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
  for (std::size_t e = 0; e < world.ends().size(); ++e) {
    if (world.can_take_turn(e)) steps.push_back({Event::What::kTurn, e});
    if (world.must_ask(e)) steps.push_back({Event::What::kAsk, e});
    if (world.can_prove_death(e)) steps.push_back({Event::What::kProveDeath, e});
  }
  return steps;
}

void tick(World& world, nanoseconds time, int sleeper) {
  const int workers = static_cast<int>(world.workers().size());
  const Time end = time == nanoseconds(0) ? Time::max() : world.now() + time;
  while (true) {
    Time next = world.next_drop();
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
    case Event::What::kJoin:
      return world.deliver_join(event.c);
    case Event::What::kDeliver:
      return world.deliver(event.c, event.v, event.lane, event.place);
    case Event::What::kDeliverTwice:
      return world.deliver(event.c, event.v, event.lane, event.place, World::Copies::kTwo);
    case Event::What::kPayloads:
      return world.deliver_payloads(event.c, event.v, event.place);
    case Event::What::kNotice:
      return world.notice(event.c, event.v);
    case Event::What::kTurn:
      return world.take_turn(event.c);
    case Event::What::kAsk:
      return world.ask(event.c);
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
    case Event::What::kLeave:
      return world.leave(call, 1 - call);
    case Event::What::kProveDeath:
      return world.prove_death(event.c);
    case Event::What::kTick:
      return tick(world, time, -1);
    case Event::What::kSleep:
      return tick(world, time, event.v);
  }
}

std::string settle(World& world) {
  std::chrono::nanoseconds lease = world.settings().terms.lease;
  for (const LeaseTerms& terms : world.settings().own_terms) lease = std::max(lease, terms.lease);
  const Time end = world.now() + 4 * lease + std::chrono::seconds(30);
  world.keep_late_packets(false);
  int idle = 0;
  for (std::size_t turn = 0; world.now() < end && world.violation().empty(); ++turn) {
    const std::vector<Event> steps = steps_of(world);
    if (!steps.empty()) {
      happen(world, steps[turn % steps.size()], nanoseconds(0));
      continue;
    }
    if (world.unrest().empty()) break;
    const Time before = world.now();
    tick(world, nanoseconds(0), -1);
    idle = world.now() == before ? idle + 1 : 0;
    if (idle > kMostIdleTicks) break;
  }
  return world.violation().empty() ? world.unrest() : world.violation();
}

}  // namespace sinew::internal::link_model
