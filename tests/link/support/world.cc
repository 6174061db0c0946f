#include "sinew/tests/link/support/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

// The network, the workers and time; world_programs.cc has what they do with it.

namespace sinew::internal::link_model {
namespace {

constexpr int kMostPolls = 32;

}  // namespace

World::World(const Settings& settings) : settings_(std::make_shared<Settings>(settings)) {
  for (int w = 0; w < settings.workers; ++w) {
    workers_.push_back({Incarnation{static_cast<std::uint64_t>(1000 + 10 * w)}, true});
  }
  for (const CallPlan& plan : settings.calls) add_call(plan);
}

void World::violate(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

// ---- Clocks.

Time World::now_of(int worker) const {
  const auto& rates = settings_->clock_rates;
  const auto index = static_cast<std::size_t>(worker);
  if (index >= rates.size()) return now_;
  const auto passed = static_cast<double>((now_ - kBegin).count());
  return kBegin + std::chrono::nanoseconds(static_cast<std::int64_t>(passed * rates[index]));
}

Time World::real_of(int worker, Time local) const {
  const auto& rates = settings_->clock_rates;
  const auto index = static_cast<std::size_t>(worker);
  if (index >= rates.size() || local == Time::max()) return local;
  if (local <= now_of(worker)) return now_;
  const auto passed = static_cast<double>((local - kBegin).count());
  // Rather late than for ever a little early.
  return kBegin + std::chrono::nanoseconds(static_cast<std::int64_t>(passed / rates[index]) + 2);
}

Time World::wake(int worker) const {
  Time wake = Time::max();
  if (!workers_[static_cast<std::size_t>(worker)].alive) return wake;
  for (const End& end : ends_) {
    if (end.worker != worker || end.dead) continue;
    wake = std::min(wake, real_of(worker, end.link.wake()));
  }
  return wake;
}

void World::poll(int worker) {
  const Time now = now_of(worker);
  for (std::size_t e = 0; e < ends_.size(); ++e) {
    for (int i = 0; ends_[e].worker == worker && !ends_[e].dead && ends_[e].link.wake() <= now;
         ++i) {
      if (i == kMostPolls) return violate("a link wants to be polled without end");
      Link::Outputs outputs;
      ends_[e].link.poll(now, outputs);
      perform(static_cast<int>(e), outputs);
    }
  }
  collect();
}

Time World::next_drop() const {
  Time next = Time::max();
  for (const End& owner : ends_) {
    if (owner.dead || !owner.link.ended() || !owner.link.was_up()) continue;
    const Time drop = real_of(owner.worker, owner.link.drop_at());
    if (drop > now_) next = std::min(next, drop);
  }
  return next;
}

void World::advance_to(Time when) {
  now_ = std::max(now_, when);
  check_fences();
}

// L7: what is held of a worker is not used any more when that worker drops it.
void World::check_fences() {
  for (const End& owner : ends_) {
    const bool drops = !owner.dead && owner.link.ended() && owner.link.was_up() &&
                       now_of(owner.worker) >= owner.link.drop_at();
    if (!drops) continue;
    for (const End& holder : ends_) {
      if (holder.dead || holder.link.options().self != owner.link.options().peer ||
          holder.link.options().peer != owner.link.options().self) {
        continue;
      }
      if (holder.link.was_up() && !holder.link.ended() &&
          !LinkInspector::fenced(holder.link, now_of(holder.worker))) {
        violate(absl::StrCat("worker ", owner.worker, " drops what worker ", holder.worker,
                             " still uses"));
      }
    }
  }
}

// ---- Workers.

int World::find_end(int worker, Incarnation peer) const {
  const Incarnation self = workers_[static_cast<std::size_t>(worker)].incarnation;
  for (std::size_t e = 0; e < ends_.size(); ++e) {
    const Link::Options& options = ends_[e].link.options();
    if (!ends_[e].dead && options.self == self && options.peer == peer) return static_cast<int>(e);
  }
  return -1;
}

int World::end_towards(int worker, int peer_worker, Incarnation peer) {
  if (const int found = find_end(worker, peer); found >= 0) return found;
  Link::Options options;
  options.self = workers_[static_cast<std::size_t>(worker)].incarnation;
  options.peer = peer;
  options.limits = settings_->limits;
  const auto index = static_cast<std::size_t>(worker);
  options.terms =
      index < settings_->own_terms.size() ? settings_->own_terms[index] : settings_->terms;
  options.takes_turns = settings_->takes_turns;
  ends_.emplace_back(worker, peer_worker, options, now_of(worker));
  return static_cast<int>(ends_.size()) - 1;
}

void World::crash(int worker) {
  workers_[static_cast<std::size_t>(worker)].alive = false;
  for (std::size_t e = 0; e < ends_.size(); ++e) {
    if (ends_[e].worker != worker || ends_[e].dead) continue;
    ends_[e].dead = true;
    for (Call& call : calls_) {
      if (call.maker == static_cast<int>(e) && !call.ended())
        call.outcome = Call::Outcome::kMakerDied;
      if (call.server == static_cast<int>(e)) call.handler = Call::Handler::kDone;
    }
    for (Connection& connection : connections_) {
      const int v = view_of(connection, static_cast<int>(e));
      if (v < 0) continue;
      connection.views[v] = View::kClosed;
      for (auto& lane : connection.lanes[v]) lane.clear();
      connection.payloads[v].clear();
    }
  }
  collect();
}

void World::restart(int worker) {
  Worker& restarted = workers_[static_cast<std::size_t>(worker)];
  restarted.alive = true;
  restarted.incarnation.value += 2000;
}

// ---- Connections.

Connection* World::find(int e, const ConnectionName& name) {
  for (Connection& connection : connections_) {
    if (connection.name == name && view_of(connection, e) >= 0) return &connection;
  }
  return nullptr;
}

int World::view_of(const Connection& connection, int e) const {
  if (connection.ends[0] == e) return 0;
  return connection.ends[1] == e ? 1 : -1;
}

void World::open(int e, std::uint64_t attempt) {
  Connection connection;
  connection.name = {end(e).link.options().self, attempt};
  connection.ends[0] = e;
  connection.to_worker = end(e).peer_worker;
  connection.expected = end(e).link.options().peer;
  connection.hello = end(e).link.hello(connection.name);
  connections_.push_back(std::move(connection));
}

void World::close(int e, const ConnectionName& name) {
  if (end(e).up == name) end(e).up = {};
  Connection* const connection = find(e, name);
  const int v = connection == nullptr ? -1 : view_of(*connection, e);
  if (v >= 0) connection->views[v] = View::kClosed;
}

// Forgets what nobody hears any more.
void World::collect() {
  for (Connection& connection : connections_) {
    for (const int v : {0, 1}) {
      if (connection.views[v] != View::kClosed || (keeps_late_ && !connection.black)) continue;
      for (auto& lane : connection.lanes[v]) lane.clear();
      connection.payloads[v].clear();
    }
  }
  connections_.erase(std::remove_if(connections_.begin(), connections_.end(),
                                    [&](const Connection& connection) {
                                      if (!connection.is_gone()) return false;
                                      if (!keeps_late_ || connection.black) return true;
                                      std::size_t left = connection.payloads[0].size() +
                                                         connection.payloads[1].size();
                                      for (const int v : {0, 1}) {
                                        for (const auto& lane : connection.lanes[v])
                                          left += lane.size();
                                      }
                                      return left == 0 &&
                                             connection.phase != Connection::Phase::kHello;
                                    }),
                     connections_.end());
}

Reach World::reach_of(const Connection& connection) const {
  const auto opener = static_cast<std::size_t>(end(connection.ends[0]).worker);
  return opener < settings_->reach.size() ? settings_->reach[opener] : Reach::kAnybody;
}

bool World::can_deliver_hello(std::size_t c) const {
  const Connection& connection = connections_[c];
  if (connection.phase != Connection::Phase::kHello || connection.black || connection.broken) {
    return false;
  }
  if (reach_of(connection) == Reach::kSwallowed) return false;
  return connection.views[0] == View::kOpening || (keeps_late_ && !end(connection.ends[0]).dead);
}

void World::deliver_hello(std::size_t c) {
  connections_[c].phase = Connection::Phase::kRefusal;
  const int worker = connections_[c].to_worker;
  const Worker& answering = workers_[static_cast<std::size_t>(worker)];
  if (!answering.alive || reach_of(connections_[c]) == Reach::kRefused) {
    connections_[c].cause = DownCause::kAddressRefuses;
    return;
  }
  connections_[c].cause = DownCause::kRefused;
  if (answering.incarnation != connections_[c].expected) {
    connections_[c].refusal = Refusal::kOtherIncarnation;
    return;
  }
  const ConnectionName name = connections_[c].name;
  const LinkHello hello = connections_[c].hello;
  const int e = end_towards(worker, end(connections_[c].ends[0]).worker, name.opener);
  Link::Outputs outputs;
  const Refusal refusal = end(e).link.on_offer(hello, now_of(worker), outputs);
  perform(e, outputs);
  Connection& connection = connections_[c];
  connection.refusal = refusal;
  if (refusal != Refusal::kNone) return;
  connection.phase = Connection::Phase::kAnswer;
  connection.answer = end(e).link.hello(name);
  connection.ends[1] = e;
  connection.views[1] = View::kOpening;
  if (settings_->accepted_is_up) {
    Link::Outputs more;
    come_up(c, 1, hello, more);
    perform(e, more);
  }
  collect();
}

bool World::can_deliver_answer(std::size_t c) const {
  const Connection& connection = connections_[c];
  return connection.views[0] == View::kOpening && !connection.black &&
         (connection.phase == Connection::Phase::kAnswer ||
          connection.phase == Connection::Phase::kRefusal);
}

void World::deliver_answer(std::size_t c) {
  Connection& connection = connections_[c];
  const ConnectionName name = connection.name;
  const int e = connection.ends[0];
  const Time now = now_of(end(e).worker);
  Link::Outputs outputs;
  if (connection.phase == Connection::Phase::kRefusal) {
    connection.views[0] = View::kClosed;
    const bool proved = connection.refusal == Refusal::kLostHere;
    end(e).link.on_down(name, connection.cause, connection.refusal, proved, now, outputs);
  } else {
    const bool both = connection.views[1] == View::kUp;
    connection.phase = both ? Connection::Phase::kMade : Connection::Phase::kJoin;
    come_up(c, 0, connection.answer, outputs);
  }
  perform(e, outputs);
  collect();
}

void World::come_up(std::size_t c, int v, const LinkHello& theirs, Link::Outputs& outputs) {
  Connection& connection = connections_[c];
  const ConnectionName name = connection.name;
  End& upper = end(connection.ends[v]);
  connection.views[v] = View::kUp;
  upper.link.on_up(name, theirs, now_of(upper.worker), outputs);
  const bool closed =
      std::find(outputs.close.begin(), outputs.close.end(), name) != outputs.close.end();
  if (!closed) upper.up = name;
}

bool World::can_deliver_join(std::size_t c) const {
  const Connection& connection = connections_[c];
  return connection.phase == Connection::Phase::kJoin && !connection.black && !connection.broken &&
         connection.views[1] == View::kOpening && (connection.views[0] == View::kUp || keeps_late_);
}

void World::deliver_join(std::size_t c) {
  connections_[c].phase = Connection::Phase::kMade;
  Link::Outputs outputs;
  come_up(c, 1, connections_[c].hello, outputs);
  perform(connections_[c].ends[1], outputs);
  collect();
}

bool World::hears(const Connection& connection, int v) const {
  if (connection.black || connection.ends[v] < 0 || end(connection.ends[v]).dead) return false;
  return connection.views[v] == View::kUp || (connection.views[v] == View::kClosed && keeps_late_);
}

bool World::can_deliver(std::size_t c, int v, Lane lane, std::size_t place) const {
  const Connection& connection = connections_[c];
  if (connection.lanes[v][static_cast<std::size_t>(lane)].size() <= place) {
    return false;
  }
  return hears(connection, v);
}

void World::deliver(std::size_t c, int v, Lane lane, std::size_t place, Copies copies) {
  Connection& connection = connections_[c];
  auto& queue = connection.lanes[v][static_cast<std::size_t>(lane)];
  const auto at = queue.begin() + static_cast<std::ptrdiff_t>(place);
  Packet packet = *at;
  if (copies == Copies::kOne) queue.erase(at);
  const ConnectionName name = connection.name;
  const int e = connection.ends[v];
  if (packet.is_large()) {
    const bool current = end(e).up == name && !end(e).link.ended();
    if (current && !end(e).link.lanes().announce(packet.header, packet.bytes())) {
      violate(absl::StrCat("there is no room for what worker ", end(e).peer_worker,
                           " announces: ", packet.bytes(), " bytes of call ", packet.content->call,
                           ", number ", packet.header.number));
    }
    connection.payloads[v].push_back(std::move(packet));
  } else {
    hear(e, name, packet);
  }
  collect();
}

bool World::can_deliver_payloads(std::size_t c, int v, std::size_t place) const {
  const Connection& connection = connections_[c];
  if (connection.payloads[v].size() <= place) return false;
  return hears(connection, v);
}

void World::deliver_payloads(std::size_t c, int v, std::size_t place) {
  Connection& connection = connections_[c];
  const auto at = connection.payloads[v].begin() + static_cast<std::ptrdiff_t>(place);
  const Packet packet = *at;
  connection.payloads[v].erase(at);
  hear(connection.ends[v], ConnectionName(connection.name), packet);
  collect();
}

bool World::can_notice(std::size_t c, int v) const {
  const Connection& connection = connections_[c];
  if (connection.black) return false;
  if (connection.views[v] != View::kUp && connection.views[v] != View::kOpening) return false;
  return connection.broken || connection.views[1 - v] == View::kClosed;
}

void World::notice(std::size_t c, int v) {
  const ConnectionName name = connections_[c].name;
  const int e = connections_[c].ends[v];
  close(e, name);
  Link::Outputs outputs;
  end(e).link.on_down(name, DownCause::kBroken, Refusal::kNone, false, now_of(end(e).worker),
                      outputs);
  perform(e, outputs);
  collect();
}

bool World::can_break(std::size_t c) const {
  const Connection& connection = connections_[c];
  return !connection.broken && !connection.black && !connection.is_gone() &&
         connection.phase != Connection::Phase::kRefusal;
}

// ---- All of it.

std::uint64_t World::digest() const {
  Digest digest;
  for (const Worker& worker : workers_) {
    digest.add(worker.incarnation.value << 1 | (worker.alive ? 1 : 0));
  }
  for (const End& end : ends_) {
    digest.add(end.dead ? 1 : 0);
    if (end.dead) continue;
    LinkInspector::add(end.link, now_of(end.worker), digest);
    LinkInspector::add(end.up, digest);
    digest.add(static_cast<std::uint64_t>(end.turns));
  }
  for (const Connection& connection : connections_) {
    LinkInspector::add(connection.name, digest);
    digest.add(static_cast<std::uint64_t>(connection.phase) << 8 |
               static_cast<std::uint64_t>(connection.views[0]) << 4 |
               static_cast<std::uint64_t>(connection.views[1]) << 2 |
               (connection.broken ? 2u : 0u) | (connection.black ? 1u : 0u));
    const bool hello_counts =
        connection.phase == Connection::Phase::kHello || connection.views[1] == View::kOpening;
    if (hello_counts) LinkInspector::add(connection.hello, digest);
    if (connection.phase == Connection::Phase::kAnswer)
      LinkInspector::add(connection.answer, digest);
    const auto add = [&digest](const Packet& packet) {
      LinkInspector::add(packet.header, digest);
      digest.add(packet.content == nullptr ? 0 : packet.content->id() + 1);
    };
    for (const int v : {0, 1}) {
      for (const auto& lane : connection.lanes[v]) {
        digest.add(lane.size());
        for (const Packet& packet : lane) add(packet);
      }
      digest.add(connection.payloads[v].size());
      for (const Packet& packet : connection.payloads[v]) add(packet);
    }
  }
  for (const Call& call : calls_) {
    digest.add(static_cast<std::uint64_t>(call.maker + 1) << 32 |
               static_cast<std::uint64_t>(call.server + 1));
    digest.add(static_cast<std::uint64_t>(call.outcome) << 8 |
               static_cast<std::uint64_t>(call.handler) << 4 | (call.cancel_came ? 1u : 0u) |
               (call.waits_for_nested ? 2u : 0u));
    for (const FrameHistory& frame : call.frames) {
      digest.add((frame.written ? 1u : 0u) + (frame.given_up ? 2u : 0u) +
                 (frame.delivered ? 4u : 0u) +
                 (frame.end.has_value() ? 8u + 8u * static_cast<unsigned>(*frame.end) : 0u));
    }
  }
  return digest.value();
}

}  // namespace sinew::internal::link_model
