#include "sinew/rpc/membership/registrar/hosted_registry.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Where there is no answer it is tried again after so long.
constexpr milliseconds kLook{100};
constexpr seconds kDialTime{3};
// A registrar answers at once: who hears nothing for so long opens another connection.
constexpr seconds kAskTime{3};
// A registrar waits so long for the others to leave a fixed world before it.
constexpr seconds kLastLeave{2};
// A registrar looks so often whether it has its seat still.
constexpr seconds kSeatCheck{1};
constexpr std::size_t kMostDoubts = 65536;
// For so many leases a whole job waits for its end while the registrar is away.
constexpr int kAwayLeases = 20;

absl::Status registry_ends() { return absl::UnavailableError("this worker shuts down"); }

/// For a client that asks for the registrar at a worker that is none.
absl::Status refuse_nobody(const SelfDescription& self, const proto::Hello& said) {
  return refuse(self, Refusal::kNotListeningYet,
                "this worker does not hold the job's list of members", said);
}

/// What to start where there is no answer.
std::string hint_for(const Rendezvous& place) {
  if (place.kind == Rendezvous::Kind::kFile || place.kind == Rendezvous::Kind::kInproc) {
    return place.world_size > 0 ? "; rank 0 founds the job: start it"
                                : "; start a worker that may found the job";
  }
  return place.world_size > 0
             ? "; rank 0 listens there: start it, or correct the rendezvous address"
             : "; the worker that founds the job listens there (rank 0, or found_job = kAlways): "
               "start it, or correct the rendezvous address";
}

/// The process that answers there is not of this job, or does not want this worker: another try is
/// in vain.
bool is_final(const absl::Status& reason) {
  return absl::IsPermissionDenied(reason) || absl::IsUnauthenticated(reason) ||
         absl::IsFailedPrecondition(reason) || absl::IsInvalidArgument(reason);
}

}  // namespace

// ---- Beginning and end.

HostedRegistry::HostedRegistry(Options options, Listener listener, Transport& transport,
                               Scheduler& scheduler, std::unique_ptr<RegistrarSeat> seat)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      transport_(transport),
      scheduler_(scheduler),
      seat_(std::move(seat)),
      client_(options_.client, now()),
      over_because_(registry_ends()) {}

std::shared_ptr<HostedRegistry> HostedRegistry::start(Options options, Listener listener,
                                                      Transport& transport, Scheduler& scheduler,
                                                      std::unique_ptr<RegistrarSeat> seat) {
  std::shared_ptr<HostedRegistry> made(new HostedRegistry(std::move(options), std::move(listener),
                                                          transport, scheduler, std::move(seat)));
  made->post([](HostedRegistry& core) {
    core.look();
    core.tick();
  });
  return made;
}

bool HostedRegistry::is_over() const {
  const MembershipState state = client_.state();
  return is_silent_ || state == MembershipState::kLeft || state == MembershipState::kEvicted;
}

std::shared_ptr<Registrar> HostedRegistry::registrar() const {
  MutexLock lock(mutex_);
  return registrar_;
}

absl::StatusOr<Acceptor::Accepted> HostedRegistry::accept(const proto::Hello& said) const {
  if (const auto held = registrar(); held != nullptr) return held->accept(said);
  return refuse_nobody(options_.self, said);
}

void HostedRegistry::after(Time pause, void (HostedRegistry::*work)()) {
  scheduler_.run_at(scheduler_.now() + pause, [weak = weak_from_this(), work] {
    const auto self = weak.lock();
    if (self != nullptr) self->post([work](HostedRegistry& core) { (core.*work)(); });
  });
}

void HostedRegistry::tick() {
  if (is_over()) return;
  run(client_.tick(now()));
  const bool is_silent = channel_ != nullptr && client_.is_away() && now() - heard_at_ > kAskTime;
  if (is_silent) lose_registrar();
  check_seat();
  look();
  settle_doubts();
  if (leaves_at_.has_value()) leave_now();
  after(options_.client.tick, &HostedRegistry::tick);
}

Registry::View HostedRegistry::view() const {
  MutexLock lock(mutex_);
  return view_;
}

void HostedRegistry::leave() {
  post([](HostedRegistry& core) {
    if (core.is_over() || core.leaves_at_.has_value()) return;
    core.leaves_at_ = core.now() + kLastLeave;
    core.leave_now();
  });
}

// The others of a fixed world leave together with their registrar, and it hears them.
void HostedRegistry::leave_now() {
  const bool waits = is_registrar() && options_.client.world_size > 0 &&
                     client_.members().size() > 1 && now() < *leaves_at_;
  if (!waits) run(client_.leave(now()));
}

void HostedRegistry::give_up(Time patience) {
  const auto done = std::make_shared<std::promise<void>>();
  const std::future<void> ended = done->get_future();
  const bool is_posted = post([done](HostedRegistry& core) {
    const AskedOfRegistrar goodbye{0, registry::Leave{true}, 0};
    const bool asks = !core.is_over() && core.channel_ != nullptr;
    const std::shared_ptr<Registrar> held = core.registrar();
    const bool tells = !core.is_over() && held != nullptr;
    core.is_silent_ = true;
    if (asks) {
      core.last_word_ = done;
      core.channel_->send(encode(goodbye));
    }
    if (tells) held->ask_as_own(goodbye);
    core.end_seat([done, asks] {
      if (!asks) done->set_value();
    });
    core.end_dials();
    for (Doubt& doubt : std::exchange(core.doubts_, {})) doubt.then();
    std::map<std::uint64_t, Gathering> gathers = std::exchange(core.gathers_, {});
    for (auto& [id, gather] : gathers) gather.then(registry_ends());
  });
  if (is_posted) ended.wait_for(patience);
  post([](HostedRegistry& core) { core.end_channels(); });
}

void HostedRegistry::end_channels() {
  end_dials();
  if (channel_ != nullptr) channel_->close(registry_ends());
  channel_ = nullptr;
  if (const auto word = std::exchange(last_word_, nullptr)) word->set_value();
}

void HostedRegistry::end_seat(std::function<void()> then) {
  std::shared_ptr<Registrar> held;
  {
    MutexLock lock(mutex_);
    held = std::exchange(registrar_, nullptr);
  }
  seat_->give_back();
  if (held == nullptr) return then();
  held->close([held, then = std::move(then)] { then(); });
}

// ---- The registrar.

void HostedRegistry::look() {
  if (is_over() || looks_ || connected_.value != 0) return;
  looks_ = true;
  const bool is_in = client_.state() != MembershipState::kJoining;
  seat_->look(is_in || options_.founds)
      .on_done([weak = weak_from_this()](const Future<RegistrarSeat::Found>& done) {
        const auto self = weak.lock();
        if (self == nullptr) return;
        absl::StatusOr<RegistrarSeat::Found> seen =
            done.error() != nullptr ? absl::StatusOr<RegistrarSeat::Found>(to_status(done.error()))
                                    : done.value();
        self->post([seen = std::move(seen)](HostedRegistry& core) {
          if (core.is_over()) return core.seat_->give_back();
          if (seen.ok()) return core.found(*seen);
          core.note_failure(seen.status());
        });
      });
}

void HostedRegistry::look_again() {
  after(kLook, &HostedRegistry::look);
  looks_ = false;
}

void HostedRegistry::found(const RegistrarSeat::Found& found) {
  if (found.is_own) return become_registrar(found.is_new);
  if (found.others.empty()) return look_again();
  // Each may be refused before open() returns.
  for (const Contact& contact : found.others) dial(contact);
  // Later ones have time of their own.
  scheduler_.run_at(scheduler_.now() + kDialTime, [weak = weak_from_this(), last = next_dial_] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->post([last](HostedRegistry& core) { core.end_dials_before(last); });
  });
}

void HostedRegistry::dial(const Contact& contact) {
  const std::uint64_t number = next_dial_++;
  dials_[number].contact = contact;
  dials_[number].channel =
      RegistryChannel::open(transport_, options_.self, contact, events_of(number));
}

RegistryChannel::Events HostedRegistry::events_of(std::uint64_t number) {
  const auto weak = weak_from_this();
  RegistryChannel::Events events;
  events.on_up = [weak, number](const WorkerInfo& answerer) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->post([number, registrar = answerer.incarnation](HostedRegistry& core) {
      core.on_up(number, registrar);
    });
  };
  events.on_message = [weak, number](const std::string& message) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    absl::StatusOr<SaidByRegistrar> said = decode_said(message);
    self->post([number, said = std::move(said)](HostedRegistry& core) {
      if (number != core.channel_number_ || core.channel_ == nullptr) return;
      if (const auto word = std::exchange(core.last_word_, nullptr)) word->set_value();
      // Only the one that this worker has asked itself is believed.
      const bool is_it = said.ok() && said->registrar == core.connected_;
      is_it ? core.hear(*said) : core.lose_registrar();
    });
  };
  events.on_down = [weak, number](const absl::Status& reason,
                                  const std::shared_ptr<const ProcessHold>&) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->post([number, reason](HostedRegistry& core) { core.on_down(number, reason); });
  };
  return events;
}

void HostedRegistry::end_dials() { end_dials_before(next_dial_); }

void HostedRegistry::end_dials_before(std::uint64_t number) {
  bool are_ended = false;
  for (auto each = dials_.begin(); each != dials_.end() && each->first < number;) {
    each->second.channel->close(absl::UnavailableError("no answer in time"));
    each = dials_.erase(each);
    are_ended = true;
  }
  if (are_ended && dials_.empty() && looks_ && connected_.value == 0 && !is_over()) look_again();
}

void HostedRegistry::on_up(std::uint64_t number, Incarnation registrar) {
  const auto found = dials_.find(number);
  if (found == dials_.end() || is_over()) return;
  channel_ = std::move(found->second.channel);
  channel_number_ = number;
  dials_.erase(found);
  connected_ = registrar;
  heard_at_ = now();
  asked_ = 0;
  answered_ = 0;
  for (Doubt& doubt : doubts_) doubt.asked = 1;
  looks_ = false;
  end_dials();
  run(client_.connected(connected_, now()));
}

void HostedRegistry::on_down(std::uint64_t number, const absl::Status& reason) {
  if (number == channel_number_ && channel_ != nullptr) {
    if (const auto word = std::exchange(last_word_, nullptr)) word->set_value();
    return lose_registrar();
  }
  const auto found = dials_.find(number);
  if (found == dials_.end() || is_over()) return;
  const bool is_for_all = found->second.contact.name.empty();
  dials_.erase(found);
  if (!dials_.empty() || connected_.value != 0)
    return client_.note_nobody(std::string(reason.message()));
  // A file may say where another job's worker is by now.
  note_failure(is_for_all ? reason : absl::UnavailableError(reason.message()));
}

void HostedRegistry::note_failure(const absl::Status& why) {
  if (is_final(why)) run(client_.refuse(why, now()));
  if (is_over()) return;
  client_.note_nobody(std::string(why.message()));
  look_again();
}

void HostedRegistry::become_registrar(bool is_new) {
  looks_ = false;
  registry::Options table = options_.table;
  table.registrar = self();
  table.own_worker = self();
  if (is_new) table.settle = Time::zero();
  table.instance = draw_job_instance();
  auto held = std::make_shared<Registrar>(table, options_.self, transport_, scheduler_,
                                          [weak = weak_from_this()](const SaidByRegistrar& said) {
                                            if (const auto self = weak.lock()) self->hear(said);
                                          });
  held->start();
  {
    MutexLock lock(mutex_);
    registrar_ = std::move(held);
  }
  connected_ = self();
  run(client_.connected(connected_, now()));
}

void HostedRegistry::check_seat() {
  if (!is_registrar() || now() < next_check_) return;
  next_check_ = now() + kSeatCheck;
  seat_->holds().on_done([weak = weak_from_this()](const Future<bool>& done) {
    const auto self = weak.lock();
    if (self == nullptr || done.error() != nullptr || done.value()) return;
    self->post([](HostedRegistry& core) {
      if (core.is_over() || !core.is_registrar()) return;
      core.end_seat();
      core.lose_registrar();
    });
  });
}

void HostedRegistry::lose_registrar() {
  if (channel_ != nullptr) channel_->close(absl::UnavailableError("the registrar does not answer"));
  channel_ = nullptr;
  connected_ = {};
  run(client_.disconnected(now()));
  look();
}

// ---- What the client wants, and hears.

void HostedRegistry::run(registry::ClientEffects effects) {
  if (is_silent_) return;
  publish();
  for (auto& effect : effects) {
    if (const auto* asked = std::get_if<registry::Ask>(&effect)) {
      ask(*asked);
    } else if (const auto* news = std::get_if<registry::MemberNews>(&effect)) {
      listener_.on_member(*news);
      // It says so itself, and is registrar no more.
      const bool is_registrar = channel_ != nullptr && news->gone.has_value() &&
                                news->member.worker.incarnation == connected_;
      if (is_registrar) post([](HostedRegistry& core) { core.lose_registrar(); });
    } else if (const auto* state = std::get_if<registry::StateNews>(&effect)) {
      change_state(*state);
    } else {
      auto& ended = std::get<registry::Ended>(effect);
      const auto found = gathers_.find(ended.id);
      if (found == gathers_.end()) continue;
      OnGathered then = std::move(found->second.then);
      gathers_.erase(found);
      then(ended.status.ok() ? absl::StatusOr<Values>(std::move(ended.values)) : ended.status);
    }
  }
}

void HostedRegistry::ask(const registry::Ask& ask) {
  AskedOfRegistrar asked{ask.echo, ask.request};
  if (channel_ != nullptr) {
    asked.number = ++asked_;
    return channel_->send(encode(asked));
  }
  post([asked](HostedRegistry& core) {
    if (const auto held = core.registrar(); held != nullptr) held->ask_as_own(asked);
  });
}

void HostedRegistry::hear(const SaidByRegistrar& said) {
  answered_ = std::max(answered_, said.answered);
  heard_at_ = now();
  client_.note_lease(said.lease);
  for (const SaidByRegistrar::Item& item : said.items) {
    if (is_over()) return;
    run(client_.handle(said.registrar, item.token, item.answer, now()));
  }
  if (leaves_at_.has_value() && !is_over()) leave_now();
  settle_doubts();
}

void HostedRegistry::change_state(const registry::StateNews& news) {
  if (news.state == MembershipState::kMember && options_.client.world_size > 0) {
    std::map<std::int32_t, std::string> names;
    for (const auto& [id, member] : client_.members()) {
      names.emplace(member.worker.rank, member.worker.name);
    }
    MutexLock lock(mutex_);
    if (view_.world_names.empty()) {
      for (const auto& [rank, name] : names) view_.world_names.push_back(name);
    }
  }
  if (!is_over()) return listener_.on_state(news.state, news.why);
  if (!news.why.ok()) over_because_ = news.why;
  end_seat([listener = listener_, news] { listener.on_state(news.state, news.why); });
  end_channels();
  settle_doubts();
}

void HostedRegistry::publish() {
  MutexLock lock(mutex_);
  view_.state = client_.state();
  view_.instance = client_.instance();
  view_.members.clear();
  for (const auto& [id, member] : client_.members()) view_.members.push_back(member);
}

// ---- Losses.

void HostedRegistry::report_lost(Incarnation member, std::string reason, bool has_ended) {
  post([member, reason = std::move(reason), has_ended](HostedRegistry& core) {
    if (core.is_over()) return;
    const auto held = core.registrar();
    if (has_ended && held != nullptr) held->on_process_ended(member, reason);
    core.run(core.client_.lost(member, reason, core.now()));
    if (has_ended && core.channel_ != nullptr && member == core.connected_) core.lose_registrar();
  });
}

void HostedRegistry::when_sure(Time patience, std::function<void()> then) {
  post([patience, then = std::move(then)](HostedRegistry& core) mutable {
    const bool is_sure = core.is_over() || core.is_registrar();
    if (is_sure || core.doubts_.size() >= kMostDoubts) return then();
    core.run(core.client_.renew(core.now()));
    // Without a registrar, that of the next connection.
    const std::uint64_t asked = core.channel_ == nullptr ? 1 : core.asked_;
    core.doubts_.push_back({asked, core.now() + patience, std::move(then)});
  });
}

void HostedRegistry::settle_doubts() {
  std::vector<Doubt> settled;
  const auto is_settled = [&](Doubt& doubt) {
    const bool is = is_over() || answered_ >= doubt.asked || now() >= doubt.until;
    if (is) settled.push_back(std::move(doubt));
    return is;
  };
  doubts_.erase(std::remove_if(doubts_.begin(), doubts_.end(), is_settled), doubts_.end());
  for (Doubt& doubt : settled) doubt.then();
}

// ---- Gathers.

void HostedRegistry::gather(const std::string& key, std::vector<std::string> names,
                            std::string value, Time timeout, OnGathered then) {
  // A task may be destroyed unrun.
  auto gathering = std::make_shared<Gathering>(Gathering{names, std::move(then)});
  const bool is_posted = post([key, names = std::move(names), value = std::move(value), timeout,
                               gathering](HostedRegistry& core) mutable {
    if (core.is_over()) return gathering->then(core.over_because_);
    const std::uint64_t id = core.client_.next_id();
    core.gathers_.emplace(id, std::move(*gathering));
    core.run(core.client_.gather(std::move(key), std::move(names), std::move(value), timeout,
                                 core.now()));
  });
  if (!is_posted) gathering->then(registry_ends());
}

std::vector<std::uint64_t> HostedRegistry::gathers_with(const std::string& worker) const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, gather] : gathers_) {
    const bool has = worker.empty() || std::find(gather.names.begin(), gather.names.end(),
                                                 worker) != gather.names.end();
    if (has) ids.push_back(id);
  }
  return ids;
}

void HostedRegistry::cancel(std::uint64_t id, const absl::Status& why) {
  run(client_.cancel(id, why, now()));
}

void HostedRegistry::end_gathers_with(const std::string& worker, absl::Status why) {
  post([worker, why = std::move(why)](HostedRegistry& core) {
    for (const std::uint64_t id : core.gathers_with(worker)) core.cancel(id, why);
  });
}

void HostedRegistry::end_gathers(absl::Status why, std::function<void()> then) {
  const bool is_posted = post([why = std::move(why), then](HostedRegistry& core) {
    for (const std::uint64_t id : core.gathers_with("")) core.cancel(id, why);
    then();
  });
  if (!is_posted) then();
}

// ---- Of a worker.

HostedStart hosted_registry(const MembershipOptions& options, SelfDescription self,
                            std::chrono::nanoseconds lease, std::chrono::nanoseconds beat,
                            std::unique_ptr<RegistrarSeat> seat, Transport& transport,
                            Scheduler& scheduler) {
  const Rendezvous& place = options.rendezvous;
  HostedRegistry::Options wanted;
  wanted.founds = place.founds;
  wanted.client.job = options.job;
  wanted.client.world_size = place.world_size;
  wanted.client.address =
      place.kind == Rendezvous::Kind::kFile ? place.path : absl::StrJoin(place.seeds, " or ");
  wanted.client.hint = hint_for(place);
  wanted.client.hint_for_all = loopback_hint(place);
  wanted.client.beat = beat;
  wanted.client.join_for = options.timeout;
  wanted.table.job = options.job;
  wanted.table.world_size = place.world_size;
  wanted.table.lease = lease;
  wanted.client.away_for = kAwayLeases * lease;
  wanted.self = self;
  // Set when the worker joins.
  struct Joined {
    Mutex mutex;
    std::shared_ptr<HostedRegistry> registry ABSL_GUARDED_BY(mutex);
  };
  const auto joined = std::make_shared<Joined>();
  const auto held = std::make_shared<std::unique_ptr<RegistrarSeat>>(std::move(seat));
  HostedStart made;
  made.start = [joined, held, wanted = std::move(wanted), &transport, &scheduler](
                   const registry::Record& member,
                   Registry::Listener listener) -> std::shared_ptr<Registry> {
    HostedRegistry::Options own = wanted;
    own.client.self = member;
    MutexLock lock(joined->mutex);
    joined->registry = HostedRegistry::start(std::move(own), std::move(listener), transport,
                                             scheduler, std::move(*held));
    return joined->registry;
  };
  made.accept = [joined, self = std::move(self)](
                    const proto::Hello& said) -> absl::StatusOr<Acceptor::Accepted> {
    std::shared_ptr<HostedRegistry> registry;
    {
      MutexLock lock(joined->mutex);
      registry = joined->registry;
    }
    return registry == nullptr ? absl::StatusOr<Acceptor::Accepted>(refuse_nobody(self, said))
                               : registry->accept(said);
  };
  return made;
}

}  // namespace sinew::internal
