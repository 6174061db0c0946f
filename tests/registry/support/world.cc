#include "sinew/tests/registry/support/world.h"

#include <algorithm>
#include <iostream>
#include <type_traits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sinew::internal::registry {
namespace {

constexpr Time kLatency = milliseconds(1);
constexpr Time kNoticed = milliseconds(2);
constexpr Time kRestart = milliseconds(300);
constexpr Time kPeriod = seconds(2);

/// As if drawn, and the same in each run.
std::uint64_t scramble(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

bool is_over(const RegistryClient& client) {
  return client.state() == MembershipState::kEvicted || client.state() == MembershipState::kLeft;
}

}  // namespace

World::World(const Setup& setup) : setup_(setup) {
  nodes_.resize(index(setup.workers + (setup.is_alone ? 1 : 0)));
}

// --- Time ---------------------------------------------------------------------------------------

void World::post(int node, Time delay, What what) {
  events_[{now_ + delay, ++serial_}] = {node, node < 0 ? 0 : at(node).life,
                                        std::make_shared<const What>(std::move(what))};
}

bool World::is_message_next() const {
  return !events_.empty() && !std::holds_alternative<Timer>(*events_.begin()->second.what);
}

bool World::step(Time end) {
  if (!violation_.empty() || events_.empty() || events_.begin()->first.first > end) return false;
  const auto [key, event] = *events_.begin();
  events_.erase(events_.begin());
  now_ = std::max(now_, key.first);
  if (event.node < 0) return true;
  Node& node = at(event.node);
  const bool is_for_all =
      std::holds_alternative<Start>(*event.what) || std::holds_alternative<ToTable>(*event.what);
  if (!is_for_all && (event.life != node.life || !node.is_alive)) return true;
  if (now_ < node.runs_from && node.is_alive && !std::holds_alternative<Start>(*event.what)) {
    // In the order in which they would have come.
    events_[{node.runs_from, key.second}] = event;
    return true;
  }
  ++counts_.events;
  happen(event.node, *event.what);
  return true;
}

void World::run_until(Time end) {
  while (step(end)) {
  }
  now_ = std::max(now_, end);
}

void World::happen(int n, const What& what) {
  std::visit(
      [&](const auto& each) {
        using Kind = std::decay_t<decltype(each)>;
        Node& node = at(n);
        if constexpr (std::is_same_v<Kind, Timer>) {
          on_timer(n);
        } else if constexpr (std::is_same_v<Kind, Start>) {
          if (!node.is_alive || (node.client.has_value() && is_over(*node.client))) start(n);
        } else if constexpr (std::is_same_v<Kind, ToTable>) {
          to_table(each);
        } else if constexpr (std::is_same_v<Kind, ProcessEnded>) {
          if (table_.has_value()) take(table_->ended(each.worker, "its process has ended", now_));
        } else if (node.client.has_value()) {
          if constexpr (std::is_same_v<Kind, ToClient>) {
            const bool is_lie = each.from != node.link;
            const Version before = node.client->version();
            const MembershipState state = node.client->state();
            take(n, node.client->handle(each.from, each.token, each.answer, now_));
            if (is_lie &&
                (before.count != node.client->version().count || state != node.client->state())) {
              violate(absl::StrCat("J10: ", name_of(n), " believes somebody who is no registrar"));
            }
            if (!is_lie && std::holds_alternative<Out>(each.answer) && !is_over(*node.client)) {
              violate(absl::StrCat("J7: ", name_of(n), " was told that it is out, and goes on"));
            }
          } else if constexpr (std::is_same_v<Kind, Unlinked>) {
            if (node.link != each.registrar) return;
            node.link = {};
            take(n, node.client->disconnected(now_));
          } else if constexpr (std::is_same_v<Kind, LinkLost>) {
            reports_.insert({node.incarnation, each.other});
            take(n, node.client->lost(each.other, "it does not answer", now_));
          }
        }
      },
      what);
}

void World::on_timer(int n) {
  post(n, kTick, Timer{});
  if (n == host() && table_.has_value()) take(table_->tick(now_));
  // What the table says may have ended this process.
  if (!at(n).is_alive || !at(n).client.has_value()) return;
  dial(n);
  take(n, at(n).client->tick(now_));
  if (at(n).client.has_value()) act(n);
}

void World::dial(int n) {
  Node& node = at(n);
  if (node.link.value != 0 || is_over(*node.client) || !table_.has_value()) return;
  if (n != host() && (is_cut(n, host()) || is_cut(host(), n) || now_ < at(host()).runs_from))
    return;
  node.link = registrar_;
  take(n, node.client->connected(registrar_, now_));
}

// What programs do: a barrier of all whom they see, in each period.
void World::act(int n) {
  Node& node = at(n);
  RegistryClient& client = *node.client;
  node.was_away = node.was_away || client.state() == MembershipState::kSuspected;
  if (client.state() != MembershipState::kMember) return;
  const std::int64_t period = now_ / kPeriod;
  if (period == node.period || !node.gathers.empty()) return;
  node.period = period;
  std::vector<std::string> names;
  std::vector<WorkerInfo> workers;
  for (const auto& [incarnation, member] : client.members()) {
    if (client.has_lost(incarnation)) continue;
    names.push_back(member.worker.name);
    workers.push_back(member.worker);
  }
  std::sort(names.begin(), names.end());
  if (std::adjacent_find(names.begin(), names.end()) != names.end()) return;
  const std::string key = absl::StrCat(names.size(), ":", fingerprint_of(workers), ":", period);
  ++counts_.gathers;
  node.was_away = false;
  node.gathers[client.next_id()] = {key, now_};
  take(n, client.gather(key, names, absl::StrCat(node.incarnation.value), kGatherFor, now_));
}

// --- Faults -------------------------------------------------------------------------------------

std::string World::name_of(int n) const {
  const bool is_twin = setup_.has_twin && n == setup_.workers - 1;
  return n >= setup_.workers ? "registrar" : absl::StrCat("w", is_twin ? n - 1 : n);
}

int World::node_of(Incarnation worker) const {
  for (int n = 0; n < nodes(); ++n) {
    if (nodes_[index(n)].incarnation == worker) return n;
  }
  return -1;
}

bool World::is_cut(int from, int to) const {
  const auto found = cuts_.find({from, to});
  return found != cuts_.end() && now_ < found->second;
}

const RegistryClient* World::client(int n) const {
  const Node& node = nodes_[index(n)];
  return node.client.has_value() ? &*node.client : nullptr;
}

void World::end_run(int n) {
  Node& node = at(n);
  if (!node.is_alive) return;
  const Incarnation ended = node.incarnation;
  ended_.insert(ended);
  node.is_alive = false;
  node.client.reset();
  node.link = {};
  node.gathers.clear();
  ++node.life;
  const Incarnation registrar = registrar_;
  if (n == host()) {
    table_.reset();
    registrar_ = {};
  } else if (setup_.has_proofs && table_.has_value() && !is_cut(n, host())) {
    post(host(), kNoticed, ProcessEnded{ended});
  }
  for (int other = 0; other < setup_.workers; ++other) {
    if (other == n || !at(other).is_alive) continue;
    const Time noticed = setup_.has_proofs && !is_cut(n, other) ? kNoticed : kLease;
    if (n < setup_.workers) post(other, noticed, LinkLost{ended});
    if (n == host()) post(other, is_cut(n, other) ? kLease : kNoticed, Unlinked{registrar});
  }
}

void World::kill(int n) {
  say(absl::StrCat("kill ", name_of(n)));
  last_fault_ = std::max(last_fault_, now_);
  end_run(n);
}

void World::start_at(int n, Time when) {
  last_fault_ = std::max(last_fault_, when);
  events_[{when, ++serial_}] = {n, 0, std::make_shared<const What>(Start{})};
}

void World::start(int n) {
  end_run(n);
  Node& node = at(n);
  const int life = node.life;
  if (n == host()) stood_still_ -= std::max(Time(0), node.runs_from - now_);
  node = Node{};
  node.life = life + 1;
  node.is_alive = true;
  node.runs_from = now_;
  node.incarnation = Incarnation{scramble(++last_incarnation_)};
  lives_.insert(node.incarnation);
  say(absl::StrCat("start ", name_of(n), " as ", node.incarnation.value));
  if (n == host()) {
    registrar_ = node.incarnation;
    Options options;
    options.registrar = registrar_;
    options.own_worker = setup_.is_alone ? Incarnation{} : registrar_;
    options.job = "job";
    options.world_size = setup_.world_size;
    options.instance = {0, static_cast<std::uint64_t>(++registrars_), scramble(registrar_.value)};
    options.lease = kLease;
    options.settle = kSettle;
    options.judge = milliseconds(300);
    options.tick = kTick;
    table_.emplace(options, now_);
    judged_ = 0;
    registrar_began_ = ran();
    gone_at_.clear();
    heard_.clear();
    returned_.clear();
  }
  if (n < setup_.workers) {
    ClientOptions options;
    const bool is_twin = setup_.has_twin && n == setup_.workers - 1;
    const int place = is_twin ? n - 1 : n;
    // Ranks that are asked for are none that are given.
    const bool asks = setup_.world_size > 0 || place % 2 == 1 || is_twin;
    const int rank = !asks ? -1 : setup_.world_size > 0 ? place : 1000 + place;
    options.self.worker = {name_of(n), rank, node.incarnation};
    options.job = "job";
    options.world_size = setup_.world_size;
    options.address = "here:1";
    options.beat = kBeat;
    options.join_for = kJoinFor;
    options.leave_for = kLeaveFor;
    options.tick = kTick;
    node.client.emplace(options, now_);
  }
  post(n, Time(0), Timer{});
}

void World::stop(int n, Time how_long) {
  say(absl::StrCat("stop ", name_of(n), " for ", how_long / milliseconds(1), " ms"));
  Node& node = at(n);
  const Time before = std::max(now_, node.runs_from);
  node.runs_from = std::max(before, now_ + how_long);
  if (n == host()) stood_still_ += node.runs_from - before;
  last_fault_ = std::max(last_fault_, node.runs_from);
  if (how_long <= kLease) return;
  for (int other = 0; other < setup_.workers; ++other) {
    if (other == n) continue;
    if (n < setup_.workers && at(other).is_alive) {
      post(other, kLease, LinkLost{node.incarnation});
      if (setup_.both_notice) post(n, kLease, LinkLost{at(other).incarnation});
    }
    if (n == host()) post(other, kLease, Unlinked{registrar_});
  }
  if (n < setup_.workers) post(n, kLease, Unlinked{registrar_});
}

void World::cut(int from, int to, Time how_long) {
  say(absl::StrCat("cut ", name_of(from), " to ", name_of(to), " for ", how_long / milliseconds(1),
                   " ms"));
  Time& until = cuts_[{from, to}];
  until = std::max(until, now_ + how_long);
  last_fault_ = std::max(last_fault_, until);
  if (how_long <= kLease) return;
  for (const auto& [a, b] : {std::make_pair(from, to), std::make_pair(to, from)}) {
    const bool notices = setup_.both_notice || a == from || b == host();
    if (!notices || a >= setup_.workers || !at(a).is_alive || !at(b).is_alive) continue;
    if (b < setup_.workers) post(a, kLease, LinkLost{at(b).incarnation});
    if (b == host()) post(a, kLease, Unlinked{registrar_});
  }
}

void World::leave(int n) {
  Node& node = at(n);
  if (!node.client.has_value() || node.leaves) return;
  say(absl::StrCat("leave ", name_of(n)));
  node.leaves = true;
  node.left = now_;
  said_leave_.insert(node.incarnation);
  last_fault_ = std::max(last_fault_, now_);
  take(n, node.client->leave(now_));
}

void World::lose_next() {
  for (auto it = events_.begin(); it != events_.end(); ++it) {
    const What& what = *it->second.what;
    if (!std::holds_alternative<ToTable>(what) && !std::holds_alternative<ToClient>(what)) continue;
    last_fault_ = std::max(last_fault_, it->first.first);
    events_.erase(it);
    return;
  }
}

void World::delay_next(Time how_long) {
  for (auto it = events_.begin(); it != events_.end(); ++it) {
    const What& what = *it->second.what;
    if (!std::holds_alternative<ToTable>(what) && !std::holds_alternative<ToClient>(what)) continue;
    const auto key = std::make_pair(it->first.first + how_long, it->first.second);
    last_fault_ = std::max(last_fault_, key.first);
    events_[key] = it->second;
    events_.erase(it);
    return;
  }
}

void World::lie(Incarnation liar, std::uint64_t echo, Request request) {
  ++counts_.lies;
  if (const Report* report = std::get_if<Report>(&request)) reports_.insert({liar, report->about});
  if (std::holds_alternative<Leave>(request)) said_leave_.insert(liar);
  post(host(), kLatency, ToTable{liar, registrar_, echo, std::move(request)});
}

void World::lie_to(int n, Incarnation liar, std::uint64_t token, Answer answer) {
  ++counts_.lies;
  post(n, kLatency, ToClient{liar, token, std::move(answer)});
}

// --- What the pure parts want done --------------------------------------------------------------

void World::to_table(const ToTable& message) {
  const int sender = node_of(message.from);
  if (!table_.has_value() || message.to != registrar_) {
    if (sender >= 0 && at(sender).is_alive) post(sender, kLatency, Unlinked{message.to});
    return;
  }
  if (std::holds_alternative<Return>(message.request)) {
    ++counts_.returns;
    returned_.insert(message.from);
  }
  Effects effects = table_->handle(message.from, message.echo, message.request, now_);
  heard_[message.from] = ran();
  take(std::move(effects));
}

void World::take(Effects effects) {
  judge_table();
  for (const Send& send : effects) {
    judge_send(send);
    for (const Incarnation to : send.to) {
      const int n = node_of(to);
      if (n < 0 || is_cut(host(), n)) continue;
      post(n, n == host() ? Time(0) : kLatency, ToClient{registrar_, send.token, send.answer});
    }
  }
}

void World::take(int n, ClientEffects effects) {
  const int life = at(n).life;
  for (auto& effect : effects) {
    if (at(n).life != life) return;
    if (Ask* ask = std::get_if<Ask>(&effect)) {
      if (is_cut(n, host()) || at(n).link.value == 0) continue;
      post(host(), n == host() ? Time(0) : kLatency,
           ToTable{at(n).incarnation, at(n).link, ask->echo, std::move(ask->request)});
    } else if (const StateNews* news = std::get_if<StateNews>(&effect)) {
      state_changed(n, *news);
    } else if (const Ended* end = std::get_if<Ended>(&effect)) {
      judge_gather(n, *end);
    } else if (const MemberNews* member = std::get_if<MemberNews>(&effect)) {
      const int other = node_of(member->member.worker.incarnation);
      say(absl::StrCat(name_of(n), " hears: ", member->member.worker.name,
                       member->gone ? " gone: " : " joined", member->reason));
      if (member->gone.has_value())
        reports_.insert({at(n).incarnation, member->member.worker.incarnation});
      const bool notices = member->gone.has_value() && other >= 0 && at(other).is_alive;
      if (notices && other < setup_.workers && setup_.both_notice) {
        post(other, kNoticed, LinkLost{at(n).incarnation});
      }
    }
  }
  judge_client(n);
  const Node& node = at(n);
  if (is_honest(n) && node.client.has_value() && node.client->is_away() && !node.gathers.empty()) {
    violate(absl::StrCat("J5: ", name_of(n), " waits for a gather, and the registrar is away"));
  }
}

void World::state_changed(int n, const StateNews& news) {
  Node& node = at(n);
  say(absl::StrCat(name_of(n), " is ", static_cast<int>(news.state), ": ",
                   std::string(news.why.message())));
  if (news.state == MembershipState::kMember) ++counts_.joins;
  if (news.state == MembershipState::kEvicted) ++counts_.evictions;
  if (!is_over(*node.client)) return;
  if (!node.leaves && news.why.ok())
    violate(absl::StrCat("J5: ", name_of(n), " is out, and nobody says why"));
  if (node.leaves && node.runs_from <= node.left && now_ > node.left + kLeaveFor + 3 * kTick) {
    violate(absl::StrCat("J5: ", name_of(n), " took too long to leave"));
  }
  // Its program starts it again.
  events_[{now_ + (node.leaves ? seconds(1) : kRestart), ++serial_}] = {
      n, 0, std::make_shared<const What>(Start{})};
}

void World::say(const std::string& text) const {
  if (tells_) std::cout << now_ / milliseconds(1) << " ms: " << text << "\n";
}

}  // namespace sinew::internal::registry
