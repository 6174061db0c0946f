#include "sinew/rpc/membership/registrar/registrar.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/membership.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/link/identity_codec.h"
#include "sinew/rpc/membership/parse_message.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMostAskers = 65536;
// Messages of one asker that have been read and not answered.
constexpr int kMostWaiting = 4096;
// For members to read what was said last.
constexpr registry::Time kFarewell = std::chrono::milliseconds(500);
// For a member whose connection is down to open another one.
constexpr registry::Time kReopening = std::chrono::seconds(1);
// A connection of one that is no member and says nothing.
constexpr registry::Time kStrangersTime = std::chrono::seconds(60);

/// As whom the sender of that wants to be known; null: it does not say.
const WorkerInfo* claim_of(const registry::Request& request) {
  if (const auto* join = std::get_if<registry::Join>(&request)) return &join->self.worker;
  if (const auto* back = std::get_if<registry::Return>(&request)) return &back->self.worker;
  return nullptr;
}

}  // namespace

Registrar::Registrar(const registry::Options& options, SelfDescription self, Transport& transport,
                     Scheduler& scheduler, OnOwn on_own)
    : options_(options),
      self_(std::move(self)),
      transport_(transport),
      scheduler_(scheduler),
      on_own_(std::move(on_own)),
      table_(options, scheduler.now().time_since_epoch()) {}

void Registrar::start() {
  scheduler_.run_at(scheduler_.now() + options_.tick, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->post([](Registrar& core) { core.tick(); });
  });
}

// The end that closes a connection drops what the other end has not read. So members close theirs
// when they hear that this one leaves.
void Registrar::close(std::function<void()> then) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    on_closed_ = std::move(then);
  }
  scheduler_.run_at(scheduler_.now() + kFarewell, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->end();
  });
  note_down({}, 0, nullptr);
}

void Registrar::end() {
  std::vector<std::shared_ptr<RegistryChannel>> channels;
  std::function<void()> then;
  {
    MutexLock lock(mutex_);
    for (auto& [incarnation, asker] : askers_) {
      if (asker.channel != nullptr) channels.push_back(std::move(asker.channel));
    }
    askers_.clear();
    then = std::exchange(on_closed_, nullptr);
  }
  for (const auto& channel : channels) {
    channel->close(absl::UnavailableError("the registrar has ended"));
  }
  if (then != nullptr) then();
}

// ---- Connections.

absl::StatusOr<Acceptor::Accepted> Registrar::accept(const proto::Hello& said) {
  const WorkerInfo asker = read_identity(said.worker());
  const auto refused = [&](Refusal refusal, const std::string& text) {
    return refuse(self_, refusal, text, said);
  };
  Acceptor::Accepted accepted;
  proto::Hello own;
  write_self(self_, own);
  *own.mutable_expected() = said.worker();
  accepted.hello = seal_hello(own, self_);
  std::shared_ptr<RegistryChannel> before;
  {
    MutexLock lock(mutex_);
    if (is_closed_) return refused(Refusal::kNotListeningYet, "this registrar ends");
    const auto [found, is_new] = askers_.try_emplace(asker.incarnation);
    Asker& known = found->second;
    if (is_new && askers_.size() > kMostAskers) {
      askers_.erase(found);
      return refused(Refusal::kNotListeningYet, "too many workers ask for the list; try again");
    }
    const bool is_same = is_new || known.name == asker.name;
    if (!is_same || asker.incarnation == options_.own_worker) {
      return refused(
          Refusal::kNotAllowed,
          absl::StrFormat("this incarnation of worker '%s' is another process", asker.name));
    }
    known.name = asker.name;
    known.number = ++connections_;
    known.process = nullptr;
    known.heard = now();
    known.asked = 0;
    before = std::exchange(known.channel, RegistryChannel::accept(events_of(asker, known.number)));
    accepted.handler = known.channel;
  }
  if (before != nullptr) before->close(absl::UnavailableError("it has opened another connection"));
  return accepted;
}

RegistryChannel::Events Registrar::events_of(const WorkerInfo& asker, std::uint64_t number) {
  RegistryChannel::Events events;
  events.on_message = [weak = weak_from_this(), asker, number,
                       waiting = std::make_shared<std::atomic<int>>(0)](std::string message) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    if (waiting->fetch_add(1) >= kMostWaiting) {
      return self->note_down(asker.incarnation, number, nullptr);
    }
    self->post([asker, waiting, message = std::move(message)](Registrar& core) {
      waiting->fetch_sub(1);
      core.take(asker, message);
    });
  };
  events.on_down = [weak = weak_from_this(), asker, number](
                       const absl::Status&, std::shared_ptr<const ProcessHold> process) {
    if (const auto self = weak.lock()) self->note_down(asker.incarnation, number, process);
  };
  return events;
}

void Registrar::note_down(Incarnation asker, std::uint64_t number,
                          std::shared_ptr<const ProcessHold> process) {
  std::shared_ptr<RegistryChannel> channel;
  bool is_over = false;
  {
    MutexLock lock(mutex_);
    const auto found = askers_.find(asker);
    if (found != askers_.end() && found->second.number == number) {
      if (process != nullptr) found->second.process = std::move(process);
      channel = std::exchange(found->second.channel, nullptr);
      found->second.down_since = now();
    }
    is_over = is_closed_ && std::none_of(askers_.begin(), askers_.end(), [](const auto& each) {
                return each.second.channel != nullptr;
              });
  }
  if (channel != nullptr) channel->close(absl::UnavailableError("the connection is over"));
  if (is_over) end();
}

void Registrar::tick() {
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
  }
  look_at_processes();
  look_at_addresses();
  deliver(table_.tick(now()));
  forget_strangers();
  start();
}

// Sockets are closed a moment before a process has ended.
void Registrar::look_at_processes() {
  std::vector<Incarnation> ended;
  {
    MutexLock lock(mutex_);
    for (const auto& [incarnation, asker] : askers_) {
      if (asker.process != nullptr && asker.process->has_ended()) ended.push_back(incarnation);
    }
  }
  for (const Incarnation each : ended) on_process_ended(each, "its process has ended");
}

// A member that lives opens another connection within moments. If it does not, its address may show
// that it has ended.
void Registrar::look_at_addresses() {
  std::vector<Incarnation> silent;
  {
    MutexLock lock(mutex_);
    for (auto& [incarnation, asker] : askers_) {
      const bool is_due = asker.channel == nullptr && now() >= asker.next_probe &&
                          now() - asker.down_since > kReopening;
      if (!is_due) continue;
      asker.next_probe = now() + kReopening;
      silent.push_back(incarnation);
    }
  }
  for (const Incarnation each : silent) probe(each);
}

void Registrar::forget_strangers() {
  std::vector<std::shared_ptr<RegistryChannel>> channels;
  {
    MutexLock lock(mutex_);
    for (auto each = askers_.begin(); each != askers_.end();) {
      const Asker& asker = each->second;
      const bool is_member = table_.roster().find(each->first) != nullptr;
      const bool is_silent = now() - asker.heard > kStrangersTime;
      if (is_member || (asker.channel != nullptr && !is_silent)) {
        ++each;
        continue;
      }
      if (asker.channel != nullptr) channels.push_back(asker.channel);
      table_.hung_up(each->first);
      each = askers_.erase(each);
    }
  }
  for (const auto& channel : channels) {
    channel->close(absl::UnavailableError("it is no member, and says nothing"));
  }
}

// ---- Questions and answers.

void Registrar::take(const WorkerInfo& asker, const std::string& message) {
  {
    MutexLock lock(mutex_);
    const auto found = askers_.find(asker.incarnation);
    if (is_closed_ || found == askers_.end()) return;
    found->second.heard = now();
  }
  const absl::StatusOr<AskedOfRegistrar> asked = decode_asked(message);
  absl::Status wrong = asked.status();
  if (asked.ok()) {
    note_asked(asker.incarnation, asked->number);
    const WorkerInfo* const claim = claim_of(asked->request);
    if (claim != nullptr &&
        (claim->name != asker.name || claim->incarnation != asker.incarnation)) {
      wrong = absl::InvalidArgumentError(absl::StrCat("worker '", asker.name, "' asks as another"));
    }
  }
  if (!wrong.ok()) {
    return say(asker.incarnation,
               {options_.registrar, options_.lease, 0, {{0, registry::Refused{wrong}}}});
  }
  deliver(table_.handle(asker.incarnation, asked->echo, asked->request, now()));
}

void Registrar::note_asked(Incarnation asker, std::uint64_t number) {
  MutexLock lock(mutex_);
  const auto found = askers_.find(asker);
  if (found != askers_.end()) found->second.asked = number;
}

void Registrar::ask_as_own(const AskedOfRegistrar& asked) {
  deliver(table_.handle(options_.own_worker, asked.echo, asked.request, now()));
}

void Registrar::on_process_ended(Incarnation worker, const std::string& reason) {
  deliver(table_.ended(worker, reason, now()));
}

// What one input leads to is one message for each that it concerns.
void Registrar::deliver(const registry::Effects& effects) {
  std::map<Incarnation, SaidByRegistrar> said;
  for (const registry::Send& send : effects) {
    for (const Incarnation to : send.to) {
      SaidByRegistrar& each = said[to];
      each.registrar = options_.registrar;
      each.lease = options_.lease;
      each.items.push_back({send.token, send.answer});
    }
  }
  // Its own worker knows of a newcomer before that knows that it is in.
  const auto own = said.find(options_.own_worker);
  if (own != said.end() && on_own_ != nullptr) {
    const SaidByRegistrar to_own = std::move(own->second);
    said.erase(own);
    on_own_(to_own);
  }
  post([said = std::move(said)](Registrar& core) mutable {
    for (auto& [to, each] : said) core.say(to, std::move(each));
  });
  for (const registry::Send& send : effects) {
    if (std::holds_alternative<registry::Probe>(send.answer)) probe(send.to.front());
  }
}

bool Registrar::has_connection(Incarnation member) {
  MutexLock lock(mutex_);
  const auto found = askers_.find(member);
  if (found == askers_.end()) return false;
  // A member that lives opens another one at once.
  return found->second.channel != nullptr || now() - found->second.down_since < kReopening;
}

// A member that has no connection may have ended.
void Registrar::probe(Incarnation member) {
  const registry::Record* const record = table_.roster().record_of(member);
  if (record == nullptr || member == options_.own_worker) return;
  if (has_connection(member)) return;
  const absl::StatusOr<proto::Member> details =
      parse_message<proto::Member>("a Member", record->details);
  if (!details.ok()) return;
  ask_who_answers(transport_, self_, {details->address(), record->worker.name},
                  [weak = weak_from_this(), member](Incarnation answerer) {
                    const auto self = weak.lock();
                    if (self == nullptr || answerer == member) return;
                    self->post([member](Registrar& core) {
                      if (core.has_connection(member)) return;
                      core.on_process_ended(member, "it is not at its address any more");
                    });
                  });
}

// Who does not get it asks again.
void Registrar::say(Incarnation to, SaidByRegistrar said) {
  std::shared_ptr<RegistryChannel> channel;
  {
    MutexLock lock(mutex_);
    const auto found = askers_.find(to);
    if (found != askers_.end()) {
      channel = found->second.channel;
      said.answered = found->second.asked;
    }
  }
  if (channel != nullptr) channel->send(encode(said));
}

}  // namespace sinew::internal
