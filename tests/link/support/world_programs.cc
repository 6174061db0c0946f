#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/tests/link/support/world.h"

// What workers do over their links, and what must hold of it.

namespace sinew::internal::link_model {

using Part = Outbound::Part;
using Outcome = Call::Outcome;
using Handler = Call::Handler;

// ---- Calls at their maker.

int World::add_call(const CallPlan& plan) {
  Call& added = calls_.emplace_back();
  added.plan = plan;
  return static_cast<int>(calls_.size()) - 1;
}

bool World::can_start(int c) const {
  return !call(c).started() && call(c).plan.within < 0 &&
         workers_[static_cast<std::size_t>(call(c).plan.from)].alive;
}

void World::start(int c) {
  const CallPlan& plan = call(c).plan;
  const int e =
      end_towards(plan.from, plan.to, workers_[static_cast<std::size_t>(plan.to)].incarnation);
  call(c).maker = e;
  if (end(e).link.ended()) return end_call(c, Outcome::kLinkEnded);
  send(e, FrameKind::kRequest,
       std::make_shared<Outbound>(Outbound{c, Part::kRequest, plan.bytes, plan.large, 0}));
}

void World::send(int e, FrameKind kind, std::shared_ptr<Outbound> content) {
  OutgoingFrame frame;
  frame.kind = kind;
  // Nobody answers a cancel: it is a note.
  if (content->part != Part::kCancel) {
    frame.subject = static_cast<std::uint64_t>(content->call) + 1;
  }
  frame.bytes = content->bytes;
  frame.large = content->large;
  const int c = content->call;
  const bool is_request = content->part == Part::kRequest;
  frame.content = std::move(content);
  Link::Outputs outputs;
  const FrameToken token = end(e).link.send(std::move(frame), now_of(end(e).worker), outputs);
  if (is_request) call(c).token = token;
  perform(e, outputs);
}

bool World::can_cancel(int c) const {
  return call(c).plan.cancellable && call(c).maker >= 0 && !call(c).ended();
}

void World::cancel(int c) {
  const int e = call(c).maker;
  call(c).frame(Part::kRequest).given_up = true;
  Link::Outputs outputs;
  const LinkLanes::GivenUp given_up =
      end(e).link.give_up(call(c).token, now_of(end(e).worker), outputs);
  perform(e, outputs);
  if (call(c).ended()) return;
  end_call(c, Outcome::kCancelled);
  if (given_up.state == LinkLanes::GivenUp::State::kNotSent) return;
  auto content = std::make_shared<Outbound>(Outbound{c, Part::kCancel, 0, false, given_up.number});
  send(e, FrameKind::kControl, std::move(content));
}

void World::end_call(int c, Outcome outcome) {
  if (call(c).ended()) return violate(absl::StrCat("call ", c, " ends twice"));
  call(c).outcome = outcome;
  if (settings_->handlers_take_time) return;
  for (std::size_t other = 0; other < calls_.size(); ++other) {
    const int within = call(c).plan.within;
    if (static_cast<int>(other) == within && can_finish_handler(within)) finish_handler(within);
  }
}

bool World::can_leave(int worker, int peer) const {
  const int e = find_end(worker, workers_[static_cast<std::size_t>(peer)].incarnation);
  return e >= 0 && workers_[static_cast<std::size_t>(worker)].alive && !end(e).link.ended();
}

void World::leave(int worker, int peer) {
  const int e = find_end(worker, workers_[static_cast<std::size_t>(peer)].incarnation);
  Link::Outputs outputs;
  end(e).link.close(outputs);
  perform(e, outputs);
  collect();
}

bool World::can_take_turn(std::size_t e) const {
  return !settings_->asks_for_turns && !ends_[e].dead && ends_[e].turns > 0;
}

void World::take_turn(std::size_t e) {
  --ends_[e].turns;
  Link::Outputs outputs;
  ends_[e].link.take_turn(now_of(ends_[e].worker), outputs);
  perform(static_cast<int>(e), outputs);
  collect();
}

bool World::can_ask(std::size_t e) const {
  const Link::State state = ends_[e].link.state();
  return !ends_[e].dead && (state == Link::State::kIdle || state == Link::State::kQueued ||
                            state == Link::State::kBackingOff);
}

bool World::must_ask(std::size_t e) const {
  return settings_->asks_for_turns && can_ask(e) && ends_[e].link.state() == Link::State::kQueued;
}

void World::ask(std::size_t e) {
  Link::Outputs outputs;
  ends_[e].link.connect_at_once(now_of(ends_[e].worker), outputs);
  if (!ends_[e].link.ended() && outputs.dial == 0) violate("who is asked to come does not dial");
  perform(static_cast<int>(e), outputs);
  collect();
}

bool World::can_prove_death(std::size_t e) const {
  if (!settings_->proves_death || ends_[e].dead || ends_[e].link.ended()) return false;
  const Worker& peer = workers_[static_cast<std::size_t>(ends_[e].peer_worker)];
  return !peer.alive || peer.incarnation != ends_[e].link.options().peer;
}

void World::prove_death(std::size_t e) {
  Link::Outputs outputs;
  ends_[e].link.on_process_ended(outputs);
  if (!ends_[e].link.ended()) violate("a link goes on though its other end is proved to be dead");
  perform(static_cast<int>(e), outputs);
  collect();
}

// ---- Calls at their server.

void World::take(int e, const Outbound& content, std::uint64_t number) {
  (void)number;
  FrameHistory& frame = call(content.call).frame(content.part);
  const char* const name[] = {"request", "reply", "cancel"};
  const std::string what =
      absl::StrCat("the ", name[static_cast<int>(content.part)], " of call ", content.call);
  if (frame.delivered) violate(absl::StrCat(what, " is delivered twice"));
  if (frame.end.value_or(FrameEnd::kLinkEnded) != FrameEnd::kLinkEnded)
    violate(absl::StrCat(what, " is delivered after it has ended for its sender"));
  frame.delivered = true;
  switch (content.part) {
    case Part::kRequest:
      return take_request(e, content);
    case Part::kReply:
      if (call(content.call).maker != e) violate(absl::StrCat(what, " goes to somebody else"));
      if (!call(content.call).ended()) end_call(content.call, Outcome::kReply);
      return;
    case Part::kCancel:
      return take_cancel(e, content);
  }
}

void World::take_request(int e, const Outbound& content) {
  const int c = content.call;
  if (call(c).cancel_came) violate(absl::StrCat("call ", c, " has overtaken its cancel"));
  call(c).server = e;
  call(c).handler = Handler::kQueued;
  std::uint64_t waiting = 0;
  int count = 0;
  for (const Call& other : calls_) {
    if (other.server != e || other.handler != Handler::kQueued) continue;
    waiting += cost(other.plan.bytes);
    ++count;
  }
  if (count > 1 && waiting > settings_->limits.request_window_bytes) {
    violate(absl::StrCat("requests of ", waiting, " bytes wait for handlers of worker ",
                         end(e).worker));
  }
  if (settings_->handlers_take_time) return;
  if (can_start_handler(c)) start_handler(c);
  if (can_finish_handler(c)) finish_handler(c);
}

void World::take_cancel(int e, const Outbound& content) {
  Call& cancelled = call(content.call);
  cancelled.cancel_came = true;
  end(e).link.lanes().void_incoming(Lane::kCalls, content.target);
  const Handler handler = cancelled.handler;
  if (cancelled.server != e || handler == Handler::kNone) return;
  cancelled.handler = Handler::kDone;
  if (handler != Handler::kQueued) return;
  Link::Outputs outputs;
  end(e).link.return_room(1, LinkLanes::cost(cancelled.plan.bytes), now_of(end(e).worker), outputs);
  perform(e, outputs);
}

bool World::can_start_handler(int c) const {
  if (call(c).handler != Handler::kQueued) return false;
  const End& server = end(call(c).server);
  return !server.link.ended() && !server.link.lanes().replies_blocked();
}

void World::start_handler(int c) {
  const int e = call(c).server;
  call(c).handler = Handler::kRunning;
  Link::Outputs outputs;
  end(e).link.return_room(1, LinkLanes::cost(call(c).plan.bytes), now_of(end(e).worker), outputs);
  perform(e, outputs);
  for (std::size_t n = 0; n < calls_.size(); ++n) {
    const int nested = static_cast<int>(n);
    if (call(nested).plan.within != c || call(nested).started()) continue;
    const CallPlan& plan = call(nested).plan;
    call(c).waits_for_nested = true;
    call(nested).maker = e;
    if (end(e).link.ended()) {
      end_call(nested, Outcome::kLinkEnded);
    } else {
      send(e, FrameKind::kRequest,
           std::make_shared<Outbound>(Outbound{nested, Part::kRequest, plan.bytes, plan.large, 0}));
    }
  }
}

bool World::can_finish_handler(int c) const {
  if (call(c).handler != Handler::kRunning) return false;
  return std::all_of(calls_.begin(), calls_.end(),
                     [&](const Call& nested) { return nested.plan.within != c || nested.ended(); });
}

void World::finish_handler(int c) {
  const int e = call(c).server;
  call(c).handler = Handler::kDone;
  if (end(e).link.ended()) return;
  const CallPlan& plan = call(c).plan;
  send(
      e, FrameKind::kReply,
      std::make_shared<Outbound>(Outbound{c, Part::kReply, plan.reply_bytes, plan.large_reply, 0}));
}

// ---- What a link asks for.

void World::hear(int e, const ConnectionName& on, const Packet& packet) {
  const Time now = now_of(end(e).worker);
  const bool current = end(e).up == on;
  const bool fenced = end(e).link.ended() || LinkInspector::fenced(end(e).link, now);
  Link::Outputs outputs;
  const LinkLanes::Delivery delivery =
      end(e).link.on_frame(on, packet.header, packet.bytes(), now, outputs);
  perform(e, outputs);
  if (delivery == LinkLanes::Delivery::kViolation) {
    violate(absl::StrCat("worker ", end(e).peer_worker, " is held for hostile"));
  }
  if (delivery == LinkLanes::Delivery::kDeliver) {
    if (fenced) violate("a link that has ended delivers");
    if (!current) violate("a connection that was superseded delivers");
    if (packet.content == nullptr) {
      violate("a frame that was given up is delivered");
    } else {
      take(e, *packet.content, packet.header.number);
    }
    if (packet.header.is_note()) {
      end(e).link.handled(packet.header.number, packet.bytes(), now);
    }
  }
  if (packet.header.beat == 0 || end(e).up != on) return;
  Link::Outputs answer;
  end(e).link.answer_beat(packet.header.beat, now, answer);
  perform(e, answer);
}

void World::perform(int e, const Link::Outputs& outputs) {
  // What is written before a connection is closed, a goodbye, may still arrive.
  for (const LinkOutputs::Write& each : outputs.writes) write(e, each);
  for (const ConnectionName& name : outputs.close) close(e, name);
  for (const LinkOutputs::Ended& ended : outputs.ended) frame_ended(e, *ended.content, ended.how);
  for (const LinkOutputs::Write& each : outputs.writes) {
    if (each.content != nullptr) check_windows(e, *each.content);
  }
  if (outputs.wants_turn) ++end(e).turns;
  if (outputs.dial != 0) open(e, outputs.dial);
  if (outputs.unreachable) give_up_unsent(e);
  if (outputs.end.has_value()) link_ended(e, *outputs.end);
  if (!outputs.room || settings_->handlers_take_time) return;
  for (std::size_t c = 0; c < calls_.size(); ++c) {
    const int queued = static_cast<int>(c);
    if (call(queued).server == e && can_start_handler(queued)) start_handler(queued);
    if (call(queued).server == e && can_finish_handler(queued)) finish_handler(queued);
  }
}

void World::write(int e, const LinkOutputs::Write& write) {
  Connection* const connection = find(e, end(e).up);
  if (connection == nullptr) return violate("a link writes without a connection");
  const int v = view_of(*connection, e);
  const FrameKind kind = write.header.kind;
  if (write.content != nullptr) {
    FrameHistory& frame = call(write.content->call).frame(write.content->part);
    if (frame.end.has_value()) violate("a frame is written that has ended");
    if (frame.given_up) {
      violate(absl::StrCat("call ", write.content->call, " is written though it was given up"));
    }
    frame.written = true;
  }
  connection->lanes[1 - v][static_cast<std::size_t>(lane_of(kind))].push_back(
      {write.header, write.content});
}

// L3: what is written and has no receipt.
void World::check_windows(int e, const Outbound& content) {
  if (content.part == Part::kRequest) return;
  std::uint64_t bytes = 0;
  int count = 0;
  for (const Call& other : calls_) {
    const int sender = content.part == Part::kReply ? other.server : other.maker;
    const FrameHistory& frame = other.frames[static_cast<int>(content.part)];
    if (sender != e || !frame.written || frame.end.has_value()) continue;
    bytes += cost(content.part == Part::kReply ? other.plan.reply_bytes : 0);
    ++count;
  }
  const LinkLimits& limits = settings_->limits;
  const std::uint64_t window =
      content.part == Part::kReply ? limits.reply_window_bytes : limits.control_window_bytes;
  if (count > 1 && bytes > window)
    violate(absl::StrCat(bytes, " bytes are on their way, beyond the window"));
}

void World::frame_ended(int e, const Outbound& content, FrameEnd how) {
  (void)e;
  Call& about = call(content.call);
  FrameHistory& frame = about.frame(content.part);
  const auto wrong = [&](const char* what) {
    violate(absl::StrCat("part ", static_cast<int>(content.part), " of call ", content.call, " ",
                         what));
  };
  if (frame.end.has_value()) wrong("ends twice");
  frame.end = how;
  if (how == FrameEnd::kNotSent && (frame.written || frame.delivered))
    wrong("was sent, and is said not to be");
  if (how == FrameEnd::kReceived && !frame.delivered && !frame.given_up && !about.cancel_came) {
    wrong("has a receipt and was not delivered");
  }
  if (content.part != Part::kRequest || about.ended() || how == FrameEnd::kReceived) return;
  end_call(content.call, how == FrameEnd::kLinkEnded ? Outcome::kLinkEnded : Outcome::kDidNotRun);
}

void World::give_up_unsent(int e) {
  for (std::size_t c = 0; c < calls_.size(); ++c) {
    if (calls_[c].maker != e || calls_[c].ended() || calls_[c].frames[0].written) continue;
    Link::Outputs outputs;
    end(e).link.give_up(calls_[c].token, now_of(end(e).worker), outputs);
    perform(e, outputs);
  }
}

void World::link_ended(int e, Gone how) {
  (void)how;
  if (end(e).link.lanes().frames() != 0) violate("a link that has ended holds frames");
  for (std::size_t c = 0; c < calls_.size(); ++c) {
    if (calls_[c].server == e && calls_[c].handler == Handler::kQueued)
      calls_[c].handler = Handler::kDone;
    if (calls_[c].maker == e && !calls_[c].ended())
      end_call(static_cast<int>(c), Outcome::kLinkEnded);
  }
}

// ---- The end of all.

std::string World::unrest() const {
  for (std::size_t c = 0; c < calls_.size(); ++c) {
    if (calls_[c].started() && !calls_[c].ended()) return absl::StrCat("call ", c, " does not end");
  }
  for (const End& end : ends_) {
    if (end.dead || end.link.ended()) continue;
    const std::string who =
        absl::StrCat("worker ", end.worker, "'s link to worker ", end.peer_worker);
    if (end.link.lanes().frames() != 0) return absl::StrCat(who, " keeps frames for ever");
    const End* other = nullptr;
    for (const End& each : ends_) {
      const Link::Options& options = each.link.options();
      if (options.self == end.link.options().peer && options.peer == end.link.options().self) {
        other = &each;
      }
    }
    if (!end.link.was_up()) {
      if (end.link.state() == Link::State::kIdle) continue;
      return absl::StrCat(who, " tries for ever");
    }
    if (other == nullptr || other->dead || other->link.ended()) {
      return absl::StrCat(who, " does not end though the other end has");
    }
    if (end.link.state() != Link::State::kUp || end.up != other->up) {
      return absl::StrCat(who, " has no connection that both ends hold for theirs: states ",
                          static_cast<int>(end.link.state()), " and ",
                          static_cast<int>(other->link.state()), ", attempts ", end.up.attempt,
                          " of ", end.up.opener.value, " and ", other->up.attempt, " of ",
                          other->up.opener.value);
    }
  }
  return "";
}

}  // namespace sinew::internal::link_model
