#include "sinew/tests/membership/support/sim_network.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::internal::sim {
namespace {

// For how long a lost process's address refuses before its peers are sure.
constexpr nanoseconds kFuse = milliseconds(700);
// How long a link outlives a goodbye.
constexpr nanoseconds kFarewell = seconds(5);
// How long a call waits until its caller is known to be a member.
constexpr nanoseconds kHeldTime = seconds(5);

absl::Status lost(const WorkerInfo& other) {
  return absl::UnavailableError(absl::StrCat("worker '", other.name, "' is lost"));
}

}  // namespace

std::string address_on(int host, const std::string& port) {
  return absl::StrCat("host", host, ":", port);
}

int Network::host_of(const std::string& address) { return std::atoi(address.c_str() + 4); }

std::shared_ptr<Plane> Network::add(const std::shared_ptr<Process>& process) {
  auto plane = std::make_shared<Plane>(*this, process);
  processes_[process->self().incarnation.value] = {process, plane};
  names_[process->self().incarnation.value] = process->self();
  return plane;
}

void Network::remove(const Process& process) {
  const std::uint64_t gone = process.self().incarnation.value;
  processes_.erase(gone);
  for (auto& [pair, link] : links_) {
    for (End& end : link.ends) {
      if (end.incarnation == gone) end.has_ended = true;
    }
  }
}

Process* Network::find(std::uint64_t incarnation) const {
  const auto found = processes_.find(incarnation);
  return found == processes_.end() ? nullptr : found->second.first.get();
}

Plane* Network::plane(std::uint64_t incarnation) const {
  const auto found = processes_.find(incarnation);
  return found == processes_.end() ? nullptr : found->second.second.get();
}

Process* Network::listener(const std::string& address) const {
  for (const auto& [incarnation, each] : processes_) {
    if (each.first->address() == address) return each.first.get();
  }
  return nullptr;
}

nanoseconds Network::delay() {
  return chance_.one_in(20) ? chance_.between(milliseconds(5), milliseconds(300))
                            : chance_.between(microseconds(50), milliseconds(5));
}

Network::Link* Network::find_link(std::uint64_t a, std::uint64_t b) {
  const auto found = links_.find(key(a, b));
  return found == links_.end() ? nullptr : &found->second;
}

Network::Link& Network::link(std::uint64_t a, std::uint64_t b) {
  const auto [found, is_new] = links_.try_emplace(key(a, b));
  Link& link = found->second;
  if (is_new) {
    link.ends[0].incarnation = std::min(a, b);
    link.ends[1].incarnation = std::max(a, b);
    link.patience = chance_.between(kLease, kLease * 5 / 4);
    const std::uint64_t one = link.ends[0].incarnation;
    const std::uint64_t two = link.ends[1].incarnation;
    clock_.run_at(clock_.now() + chance_.between(microseconds(100), milliseconds(20)),
                  [this, one, two] { beat(one, two); });
  }
  return link;
}

void Network::keep_lease(Process& of, const WorkerInfo& other) {
  if (of.self().incarnation == other.incarnation) return;
  link(of.self().incarnation.value, other.incarnation.value);
}

void Network::end(const Process& at, const WorkerInfo& other) {
  const std::uint64_t self = at.self().incarnation.value;
  if (self == other.incarnation.value) return;
  for (End& end : link(self, other.incarnation.value).ends) {
    if (end.incarnation == self) end.has_ended = true;
  }
  fail_calls(self, other.incarnation.value, lost(other));
}

void Network::retire(const Process& at, const WorkerInfo& other) {
  clock_.run_at(clock_.now() + kFarewell, [this, self = at.self(), other] {
    if (const Process* still = find(self.incarnation.value)) end(*still, other);
  });
}

void Network::end_all(const Process& at) {
  const std::uint64_t self = at.self().incarnation.value;
  std::vector<std::uint64_t> others;
  for (auto& [pair, link] : links_) {
    if (pair.first != self && pair.second != self) continue;
    others.push_back(pair.first == self ? pair.second : pair.first);
    for (End& end : link.ends) {
      if (end.incarnation == self) end.has_ended = true;
    }
  }
  for (const std::uint64_t other : others) {
    fail_calls(self, other, absl::UnavailableError("this worker is out"));
  }
}

void Network::fail_calls(std::uint64_t at, std::uint64_t other, const absl::Status& status) {
  Link* found = find_link(at, other);
  if (found == nullptr) return;
  std::vector<Promise<std::string>> calls;
  for (End& end : found->ends) {
    if (end.incarnation == at) calls.swap(end.calls);
  }
  for (const Promise<std::string>& each : calls) each.try_set_error(make_error(status));
}

// ---- Leases.

// Who has lost a guest talks to it again when it has become a member.
void Network::take_up_again(Link& link) {
  for (std::size_t i = 0; i < 2; ++i) {
    End& end = link.ends[i];
    const Plane* here = plane(end.incarnation);
    if (!end.has_ended || !end.was_guest || here == nullptr) continue;
    if (!here->lists(names_.at(link.ends[1 - i].incarnation))) continue;
    end.has_ended = end.was_guest = false;
    end.heard = clock_.now();
    end.refused_since = TimePoint::max();
  }
}

void Network::beat(std::uint64_t a, std::uint64_t b) {
  Link* found = find_link(a, b);
  Process* one = find(a);
  Process* two = find(b);
  if (found == nullptr) return;
  take_up_again(*found);
  const bool over = found->ends[0].has_ended && found->ends[1].has_ended;
  const bool has_guest = found->ends[0].was_guest || found->ends[1].was_guest;
  if (over && found->ends[0].was_guest && found->ends[1].was_guest) {
    links_.erase(key(a, b));
    return;
  }
  if ((over && !has_guest) || (one == nullptr && two == nullptr)) return;
  if (over) {
    clock_.run_at(clock_.now() + kBeat, [this, a, b] { beat(a, b); });
    return;
  }
  const bool through =
      one != nullptr && two != nullptr && one->runs() && two->runs() && both_ways(*one, *two);
  if (through && !found->ends[0].has_ended && !found->ends[1].has_ended) {
    found->was_up = true;
    found->ends[0].heard = found->ends[1].heard = clock_.now();
  }
  if (through && found->ends[0].has_ended != found->ends[1].has_ended) {
    // Who has not ended it hears that the other one has.
    found->ends[0].has_ended ? lose(b, a) : lose(a, b);
  }
  beat_end(*found, 0);
  beat_end(*found, 1);
  clock_.run_at(clock_.now() + kBeat, [this, a, b] { beat(a, b); });
}

void Network::beat_end(Link& link, std::size_t index) {
  End& end = link.ends[index];
  const std::uint64_t self = end.incarnation;
  const std::uint64_t other = link.ends[1 - index].incarnation;
  Process* here = find(self);
  if (end.has_ended || here == nullptr || !here->runs()) return;
  if (!link.was_up) {
    // Never lost, and what waits is told so.
    if (find(other) == nullptr) {
      fail_calls(self, other, absl::UnavailableError("nobody is there, and never was"));
    }
    return;
  }
  if (find(other) == nullptr) {
    // Its address refuses, where anything gets there and back; addresses go with hosts.
    const int host = static_cast<int>(other % 100);
    const bool refused = reaches(here->host(), host) && reaches(host, here->host());
    end.refused_since = refused ? std::min(end.refused_since, clock_.now()) : TimePoint::max();
    if (refused && clock_.now() - end.refused_since >= kFuse) return lose(self, other);
    // Whoever listens at the address of its predecessor is sought by those who look for that one.
    if (refused && host == 0) {
      Process* there = listener(address_on(0, "meet"));
      Plane* sought =
          there == nullptr || !there->runs() ? nullptr : plane(there->self().incarnation.value);
      if (sought != nullptr && sought->membership != nullptr) sought->membership->on_sought();
    }
  }
  if (clock_.now() - end.heard > link.patience) lose(self, other);
}

void Network::lose(std::uint64_t at, std::uint64_t other) {
  Link* found = find_link(at, other);
  Plane* here = plane(at);
  const WorkerInfo who = names_.at(other);
  for (End& end : found->ends) {
    if (end.incarnation != at) continue;
    end.has_ended = true;
    end.was_guest = here != nullptr && !here->lists(who);
  }
  if (here == nullptr || here->membership == nullptr) return;
  here->membership->when_judged(who, [this, at, other, who] {
    fail_calls(at, other, lost(who));
    Plane* plane_now = plane(at);
    if (plane_now != nullptr && plane_now->membership != nullptr) {
      const bool is_proved = pidfds && find(other) == nullptr;
      plane_now->membership->on_worker_lost(who, is_proved ? Proof::kEnded : Proof::kNone);
    }
  });
}

std::string Network::lost_pair(const std::set<std::uint64_t>& among) const {
  for (const auto& [pair, link] : links_) {
    const bool alive = among.count(pair.first) > 0 && among.count(pair.second) > 0;
    if (!alive || !(link.ends[0].has_ended || link.ends[1].has_ended)) continue;
    return absl::StrCat(names_.at(pair.first).name, " and ", names_.at(pair.second).name);
  }
  return "";
}

// ---- Messages.

void Network::send(std::uint64_t from, std::uint64_t to, std::function<void()> deliver) {
  Link& between = link(from, to);
  End& end = between.ends[from < to ? 0 : 1];
  end.outgoing.push_back(std::move(deliver));
  if (!std::exchange(end.pumps, true)) pump_later(from, to, later());
}

void Network::pump_later(std::uint64_t from, std::uint64_t to, TimePoint when) {
  clock_.run_at(when, [this, from, to] { pump(from, to); });
}

// What was sent goes on its way also when the sender is stopped, and waits for a stopped receiver.
void Network::pump(std::uint64_t from, std::uint64_t to) {
  if (const nanoseconds later = on_step ? on_step() : nanoseconds(0); later > nanoseconds(0)) {
    return pump_later(from, to, clock_.now() + later);
  }
  Link& between = link(from, to);
  End& end = between.ends[from < to ? 0 : 1];
  const End& other = between.ends[from < to ? 1 : 0];
  Process* sender = find(from);
  Process* receiver = find(to);
  const bool lost_for_good =
      end.has_ended || other.has_ended || sender == nullptr || receiver == nullptr;
  if (lost_for_good) {
    end.outgoing.clear();
    end.pumps = false;
    return;
  }
  if (end.outgoing.empty()) {
    end.pumps = false;
    return;
  }
  if (!both_ways(*sender, *receiver)) return pump_later(from, to, clock_.now() + kBeat);
  if (!between.was_up) {
    between.was_up = true;
    between.ends[0].heard = between.ends[1].heard = clock_.now();
  }
  std::function<void()> message = std::move(end.outgoing.front());
  end.outgoing.pop_front();
  end.pumps = !end.outgoing.empty();
  if (end.pumps) pump_later(from, to, later());
  receiver->post([this, from, to, deliver = std::move(message)] {
    Link& now = link(from, to);
    if (!now.ends[from < to ? 1 : 0].has_ended) deliver();
  });
}

Future<std::string> Network::call(Process& from, std::uint64_t to, std::string method,
                                  std::string body, nanoseconds timeout) {
  const Promise<std::string> answer(nullptr);
  const std::uint64_t self = from.self().incarnation.value;
  Link& between = link(self, to);
  End& end = between.ends[self < to ? 0 : 1];
  if (end.has_ended) {
    answer.set_error(make_error(absl::UnavailableError("the link has ended")));
    return answer.future();
  }
  end.calls.push_back(answer);
  const TimePoint when = deadline_after(clock_.now(), timeout);
  if (when != TimePoint::max()) {
    from.run_at(when, [answer, method] {
      answer.try_set_error(make_error(
          absl::DeadlineExceededError(absl::StrCat(method, " was not answered in time"))));
    });
  }
  send(self, to, [this, self, to, method = std::move(method), body = std::move(body), answer] {
    request(self, to, method, body, answer);
  });
  return answer.future();
}

void Network::request(std::uint64_t from, std::uint64_t to, const std::string& method,
                      std::string body, const Promise<std::string>& answer) {
  Plane* callee = plane(to);
  Plane* caller = plane(from);
  if (callee == nullptr || caller == nullptr) return;
  WorkerInfo who = caller->process_->self();
  who.rank = caller->rank ? caller->rank() : -1;
  if (tap) tap(who, callee->process_->self(), method, body);
  if (is_for_guests(method) || callee->lists(who)) {
    return serve(who, *callee, method, std::move(body), answer);
  }
  const std::uint64_t number = ++callee->last_held_;
  const auto begin = [this, who, to, method, body = std::move(body), answer] {
    if (Plane* still = plane(to)) serve(who, *still, method, body, answer);
  };
  callee->held_.try_emplace(number, Plane::HeldCall{who, begin});
  callee->process_->run_at(clock_.now() + kHeldTime, [this, from, to, number, answer] {
    Plane* still = plane(to);
    if (still == nullptr || still->held_.erase(number) == 0) return;
    send(to, from, [answer] {
      answer.try_set_error(
          make_error(absl::UnavailableError("its caller is not on the list of members there")));
    });
  });
}

void Plane::serve_held() {
  for (auto each = held_.begin(); each != held_.end();) {
    if (!lists(each->second.from)) {
      ++each;
      continue;
    }
    process_->post(std::move(each->second.serve));
    each = held_.erase(each);
  }
}

void Network::serve(const WorkerInfo& who, Plane& callee, const std::string& method,
                    std::string body, const Promise<std::string>& answer) {
  const auto handler = callee.handlers_.find(method);
  if (handler == callee.handlers_.end()) return;
  const std::uint64_t from = who.incarnation.value;
  const std::uint64_t to = callee.process_->self().incarnation.value;
  handler->second(who, std::move(body))
      .on_done([this, alive = std::weak_ptr<bool>(alive_), from, to, answer](const auto& done) {
        if (alive.expired()) return;
        send(to, from, [answer, done] {
          const std::exception_ptr error = done.error();
          error != nullptr ? (void)answer.try_set_error(error)
                           : (void)answer.try_set_value(done.value());
        });
      });
}

// ---- Without a link.

void Network::ask(Process& from, const std::string& address, OnAnswerer then) {
  const auto attempt = [this, asker = from.shared_from_this(), address, then] {
    if (on_step) on_step();
    const int host = host_of(address);
    if (!reaches(asker->host(), host) || !reaches(host, asker->host())) return;
    Process* there = listener(address);
    const TimePoint back = later();
    if (there == nullptr) {
      asker->run_at(back, [then] { then(absl::NotFoundError("the address refuses")); });
      return;
    }
    // Its answer waits where it is stopped.
    there->post([this, asker, then, who = there->self().incarnation.value, back] {
      if (!reaches(find(who)->host(), asker->host())) return;
      asker->run_at(std::max(back, clock_.now()), [this, then, who] {
        Process* answerer = find(who);
        answerer != nullptr ? then(answerer) : then(absl::NotFoundError("it has just ended"));
      });
    });
  };
  clock_.run_at(later(), attempt);
}

Future<std::string> Plane::control_call(const WorkerInfo& to, std::string_view method,
                                        std::string body, nanoseconds timeout) {
  return network_.call(*process_, to.incarnation.value, std::string(method), std::move(body),
                       timeout);
}

Future<std::string> Plane::control_call_address(const Contact& contact, std::string_view method,
                                                std::string body, nanoseconds timeout) {
  const Promise<std::string> answer(nullptr);
  const TimePoint when = deadline_after(network_.clock_.now(), timeout);
  if (when != TimePoint::max()) {
    process_->run_at(when, [answer] {
      answer.try_set_error(make_error(absl::DeadlineExceededError("nobody answered")));
    });
  }
  network_.ask(*process_, contact.address,
               [this, answer, method = std::string(method), body = std::move(body),
                timeout](const absl::StatusOr<Process*>& answerer) mutable {
                 if (!answerer.ok()) {
                   answer.try_set_error(make_error(answerer.status()));
                   return;
                 }
                 network_
                     .call(*process_, (*answerer)->self().incarnation.value, std::move(method),
                           std::move(body), timeout)
                     .on_done([answer](const Future<std::string>& done) {
                       done.error() != nullptr ? (void)answer.try_set_error(done.error())
                                               : (void)answer.try_set_value(done.value());
                     });
               });
  return answer.future();
}

Future<Standing> Plane::ask_standing(const Member& of, const Standing& own) {
  const Promise<Standing> answer(nullptr);
  network_.ask(
      *process_, of.address, [this, answer, of, own](const absl::StatusOr<Process*>& answerer) {
        const bool is_it =
            answerer.ok() && (*answerer)->self().incarnation == of.worker.incarnation;
        if (!is_it) {
          answer.set_error(make_error(answerer.ok()
                                          ? absl::AlreadyExistsError("another incarnation is there")
                                          : answerer.status()));
          return;
        }
        Plane* there = network_.plane(of.worker.incarnation.value);
        answer.set_value(
            there->membership == nullptr
                ? Standing()
                : there->membership->on_asked(process_->self(), process_->address(), own));
      });
  return answer.future();
}

Future<MembershipOptions::Answerer> Plane::ask_address(const Contact& contact,
                                                       const Standing& own) {
  const Promise<MembershipOptions::Answerer> answer(nullptr);
  network_.ask(
      *process_, contact.address, [this, answer, own](const absl::StatusOr<Process*>& answerer) {
        if (!answerer.ok()) {
          answer.set_error(make_error(answerer.status()));
          return;
        }
        Plane* there = network_.plane((*answerer)->self().incarnation.value);
        answer.set_value(
            {(*answerer)->self(),
             there->membership == nullptr
                 ? Standing()
                 : there->membership->on_asked(process_->self(), process_->address(), own)});
      });
  return answer.future();
}

Future<bool> Plane::probe_lost(const Member& member) {
  const std::uint64_t self = process_->self().incarnation.value;
  const std::uint64_t other = member.worker.incarnation.value;
  if (const Network::Link* found = network_.find_link(self, other); found != nullptr) {
    if (found->ends[self < other ? 0 : 1].has_ended) return make_ready_future(true);
  }
  if (is_linked(member.worker)) return make_ready_future(false);
  const Promise<bool> answer(nullptr);
  process_->run_at(network_.clock_.now() + seconds(5), [answer] {
    answer.try_set_error(make_error(absl::UnavailableError("nobody knows")));
  });
  network_.ask(*process_, member.address,
               [answer, member](const absl::StatusOr<Process*>& answerer) {
                 answer.try_set_value(!answerer.ok() ||
                                      (*answerer)->self().incarnation != member.worker.incarnation);
               });
  return answer.future();
}

bool Plane::is_linked(const WorkerInfo& other) const {
  const std::uint64_t self = process_->self().incarnation.value;
  const Network::Link* found = network_.find_link(self, other.incarnation.value);
  if (found == nullptr || !found->was_up) return false;
  const Network::End& end = found->ends[self < other.incarnation.value ? 0 : 1];
  // As long as nothing breaks the connection, it is up until the lease has ended.
  return !end.has_ended && network_.find(other.incarnation.value) != nullptr;
}

}  // namespace sinew::internal::sim
