#include "sinew/rpc/membership/link_registry.h"

#include <algorithm>
#include <future>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Where nobody answers it is looked again so soon.
constexpr milliseconds kLook{100};
constexpr seconds kDialTime{1};
// A registrar answers a question within a second, also one that waits.
constexpr seconds kAskTime{3};
// A registrar waits so long for the others to leave a fixed world before it.
constexpr seconds kLastLeave{2};
constexpr std::size_t kMostDoubts = 65536;

absl::StatusOr<SaidByRegistrar> said_in(const Future<std::string>& answer) {
  if (answer.error() != nullptr) return to_status(answer.error());
  return decode_said(answer.value());
}

absl::Status shuts_down() { return absl::UnavailableError("this worker shuts down"); }

}  // namespace

// ---- Beginning and end.

std::shared_ptr<LinkRegistry> LinkRegistry::make(ControlPlane& plane, Scheduler& scheduler,
                                                 std::unique_ptr<RegistrarSeat> seat) {
  std::shared_ptr<LinkRegistry> made(new LinkRegistry(plane, scheduler, std::move(seat)));
  made->add_methods();
  return made;
}

void LinkRegistry::add_methods() {
  using Handler = Future<std::string> (LinkRegistry::*)(const WorkerInfo&, const std::string&);
  const auto add = [this](std::string_view name, Handler handler) {
    plane_.add_control_method(
        std::string(name),
        [weak = weak_from_this(), handler](const WorkerInfo& from, const std::string& body) {
          const auto self = weak.lock();
          if (self == nullptr) return make_failed_future<std::string>(make_error(shuts_down()));
          return (self.get()->*handler)(from, body);
        });
  };
  add(kRegistrarMethod, &LinkRegistry::serve);
  add(kRegistryNewsMethod, &LinkRegistry::take_news);
}

void LinkRegistry::start(Options options, Listener listener) {
  post([options = std::move(options), listener = std::move(listener)](LinkRegistry& core) mutable {
    core.options_ = std::move(options);
    core.listener_ = std::move(listener);
    core.options_.table.registrar = core.self();
    core.options_.table.own_worker = core.self();
    core.client_.emplace(core.options_.client, core.now());
    core.look();
    core.tick();
  });
}

bool LinkRegistry::is_over() const {
  const MembershipState state = client_->state();
  return is_silent_ || state == MembershipState::kLeft || state == MembershipState::kEvicted;
}

void LinkRegistry::after(Time pause, void (LinkRegistry::*work)()) {
  scheduler_.run_at(scheduler_.now() + pause, [weak = weak_from_this(), work] {
    const auto self = weak.lock();
    if (self != nullptr) self->post([work](LinkRegistry& core) { (core.*work)(); });
  });
}

void LinkRegistry::tick() {
  if (is_over()) return;
  run(client_->tick(now()));
  look();
  settle_doubts();
  if (leaves_at_.has_value()) leave_now();
  after(options_.client.tick, &LinkRegistry::tick);
}

Registry::View LinkRegistry::view() const {
  MutexLock lock(mutex_);
  return view_;
}

void LinkRegistry::leave() {
  post([](LinkRegistry& core) {
    if (!core.client_.has_value() || core.is_over() || core.leaves_at_.has_value()) return;
    core.leaves_at_ = core.now() + kLastLeave;
    core.leave_now();
  });
}

// The others of a fixed world leave together with their registrar, and it hears them.
void LinkRegistry::leave_now() {
  const bool waits = registrar_ != nullptr && options_.client.world_size > 0 &&
                     client_->members().size() > 1 && now() < *leaves_at_;
  if (!waits) run(client_->leave(now()));
}

void LinkRegistry::give_up(Time patience) {
  const auto done = std::make_shared<std::promise<void>>();
  const std::future<void> ended = done->get_future();
  const bool is_posted = post([done](LinkRegistry& core) {
    const bool was_in = core.client_.has_value() && !core.is_over();
    core.is_silent_ = true;
    const bool asks = was_in && core.registrar_ == nullptr && core.connected_.value != 0;
    if (asks) {
      core.plane_
          .control_call_address(core.contact_, kRegistrarMethod,
                                encode(AskedOfRegistrar{0, registry::Leave{}}), kDialTime)
          .on_done([done](const auto&) { done->set_value(); });
    }
    core.end_seat();
    for (Doubt& doubt : std::exchange(core.doubts_, {})) doubt.then();
    std::map<std::uint64_t, Gathering> gathers = std::exchange(core.gathers_, {});
    for (auto& [id, gather] : gathers) gather.then(shuts_down());
    if (!asks) done->set_value();
  });
  if (is_posted) ended.wait_for(patience);
}

void LinkRegistry::end_seat() {
  if (registrar_ != nullptr) registrar_->close();
  registrar_ = nullptr;
  seat_->give_back();
}

// ---- The registrar.

Future<std::string> LinkRegistry::serve(const WorkerInfo& from, const std::string& body) {
  const Promise<std::string> answer(scheduler_.executor());
  const bool is_posted = post([from, body, answer](LinkRegistry& core) {
    if (core.registrar_ == nullptr) {
      answer.set_error(
          make_error(absl::NotFoundError("this worker does not hold the job's list of members")));
      return;
    }
    core.registrar_->serve(from, body).on_done([answer](const Future<std::string>& done) {
      done.error() != nullptr ? answer.try_set_error(done.error())
                              : answer.try_set_value(done.value());
    });
  });
  if (!is_posted) answer.try_set_error(make_error(shuts_down()));
  return answer.future();
}

void LinkRegistry::look() {
  if (is_over() || looks_ || connected_.value != 0) return;
  looks_ = true;
  const bool is_in = client_->state() != MembershipState::kJoining;
  seat_->look(is_in || options_.founds)
      .on_done([weak = weak_from_this()](const Future<RegistrarSeat::Found>& done) {
        const auto self = weak.lock();
        if (self == nullptr) return;
        absl::StatusOr<RegistrarSeat::Found> seen =
            done.error() != nullptr ? absl::StatusOr<RegistrarSeat::Found>(to_status(done.error()))
                                    : done.value();
        self->post([seen = std::move(seen)](LinkRegistry& core) {
          if (core.is_over()) return core.seat_->give_back();
          seen.ok() ? core.found(*seen) : core.look_again();
        });
      });
}

void LinkRegistry::look_again() {
  after(kLook, &LinkRegistry::look);
  looks_ = false;
}

void LinkRegistry::found(const RegistrarSeat::Found& found) {
  if (found.is_own) return become_registrar(found.is_new);
  dials_ = found.others.size();
  if (dials_ == 0) return look_again();
  for (const Contact& contact : found.others) {
    plane_.control_call_address(contact, kRegistrarMethod, "", kDialTime)
        .on_done([weak = weak_from_this(), contact](const Future<std::string>& answer) {
          const auto self = weak.lock();
          if (self == nullptr) return;
          self->post([contact, said = said_in(answer)](LinkRegistry& core) {
            core.dialled(contact, said);
          });
        });
  }
}

void LinkRegistry::dialled(const Contact& contact, const absl::StatusOr<SaidByRegistrar>& said) {
  --dials_;
  if (is_over()) return;
  if (said.ok() && connected_.value == 0) {
    connected_ = said->registrar;
    contact_ = contact;
    run(client_->connected(connected_, now()));
  }
  if (!said.ok() && client_->state() != MembershipState::kJoining) ask_standing(contact);
  if (dials_ > 0 || is_over()) return;
  connected_.value != 0 ? (void)(looks_ = false) : look_again();
}

void LinkRegistry::ask_standing(const Contact& contact) {
  options_.ask_address(contact, {})
      .on_done([weak = weak_from_this()](const Future<MembershipOptions::Answerer>& done) {
        const auto self = weak.lock();
        if (self == nullptr || done.error() != nullptr) return;
        self->post([answerer = done.value()](LinkRegistry& core) {
          const Incarnation registrar = core.client_->version().registrar;
          const bool is_out = answerer.worker.incarnation == registrar &&
                              answerer.standing.of_other == Standing::OfOther::kEvicted;
          if (core.is_over() || !is_out || core.connected_.value != 0) return;
          core.run(core.client_->put_off(
              absl::StrCat("worker '", answerer.worker.name,
                           "', which holds the list, took it for lost and goes on without it"),
              core.now()));
          core.settle_doubts();
        });
      });
}

void LinkRegistry::become_registrar(bool is_new) {
  looks_ = false;
  registry::Options table = options_.table;
  if (is_new) table.settle = Time::zero();
  table.instance = draw_job_instance();
  registrar_ = std::make_shared<Registrar>(
      table, plane_, scheduler_, [weak = weak_from_this()](const SaidByRegistrar& said) {
        const auto self = weak.lock();
        if (self == nullptr) return;
        self->post([said](LinkRegistry& core) { core.hear(said); });
      });
  registrar_->start();
  connected_ = self();
  run(client_->connected(connected_, now()));
}

void LinkRegistry::lose_registrar() {
  connected_ = {};
  run(client_->disconnected(now()));
  look();
}

// ---- What the client wants, and hears.

void LinkRegistry::run(registry::ClientEffects effects) {
  if (is_silent_) return;
  publish();
  for (auto& effect : effects) {
    if (const auto* asked = std::get_if<registry::Ask>(&effect)) {
      ask(*asked);
    } else if (const auto* news = std::get_if<registry::MemberNews>(&effect)) {
      listener_.on_member(*news);
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

void LinkRegistry::ask(const registry::Ask& ask) {
  const AskedOfRegistrar asked{ask.echo, ask.request};
  if (registrar_ != nullptr) {
    post([asked](LinkRegistry& core) {
      if (core.registrar_ != nullptr) core.registrar_->ask_as_own(asked);
    });
    return;
  }
  plane_.control_call_address(contact_, kRegistrarMethod, encode(asked), kAskTime)
      .on_done([weak = weak_from_this(), of = connected_](const Future<std::string>& answer) {
        const auto self = weak.lock();
        if (self == nullptr) return;
        self->post([of, said = said_in(answer)](LinkRegistry& core) {
          if (core.is_over() || core.connected_ != of) return;
          const bool is_it = said.ok() && said->registrar == of;
          is_it ? core.hear(*said) : core.lose_registrar();
        });
      });
}

Future<std::string> LinkRegistry::take_news(const WorkerInfo& from, const std::string& body) {
  absl::StatusOr<SaidByRegistrar> said = decode_said(body);
  if (!said.ok()) return make_failed_future<std::string>(make_error(said.status()));
  post([from, said = *std::move(said)](LinkRegistry& core) {
    // Only the one that this worker has asked itself is believed.
    const bool is_it = core.connected_.value != 0 && from.incarnation == core.connected_ &&
                       said.registrar == core.connected_;
    if (is_it) core.hear(said);
  });
  return make_ready_future(std::string());
}

void LinkRegistry::hear(const SaidByRegistrar& said) {
  ++heard_;
  for (const SaidByRegistrar::Item& item : said.items) {
    if (is_over()) return;
    run(client_->handle(said.registrar, item.token, item.answer, now()));
  }
  settle_doubts();
}

void LinkRegistry::change_state(const registry::StateNews& news) {
  if (news.state == MembershipState::kMember && options_.client.world_size > 0) {
    std::map<std::int32_t, std::string> names;
    for (const auto& [id, member] : client_->members()) {
      names.emplace(member.worker.rank, member.worker.name);
    }
    MutexLock lock(mutex_);
    if (view_.world_names.empty()) {
      for (const auto& [rank, name] : names) view_.world_names.push_back(name);
    }
  }
  listener_.on_state(news.state, news.why);
  if (is_over()) {
    end_seat();
    settle_doubts();
  }
}

void LinkRegistry::publish() {
  MutexLock lock(mutex_);
  view_.state = client_->state();
  view_.instance = client_->instance();
  view_.members.clear();
  for (const auto& [id, member] : client_->members()) view_.members.push_back(member);
}

// ---- Losses.

void LinkRegistry::report_lost(Incarnation member, std::string reason, bool has_ended) {
  post([member, reason = std::move(reason), has_ended](LinkRegistry& core) {
    if (!core.client_.has_value() || core.is_over()) return;
    if (has_ended && core.registrar_ != nullptr) {
      core.registrar_->on_process_ended(member, reason);
    }
    core.run(core.client_->lost(member, reason, core.now()));
    const bool was_registrar = core.registrar_ == nullptr && member == core.connected_;
    if (was_registrar) core.lose_registrar();
  });
}

void LinkRegistry::when_sure(Time patience, std::function<void()> then) {
  post([patience, then = std::move(then)](LinkRegistry& core) mutable {
    const bool is_sure = !core.client_.has_value() || core.is_over() || core.registrar_ != nullptr;
    if (is_sure || core.doubts_.size() >= kMostDoubts) return then();
    core.doubts_.push_back({core.heard_, core.now() + patience, std::move(then)});
    core.run(core.client_->renew(core.now()));
  });
}

void LinkRegistry::settle_doubts() {
  std::vector<Doubt> settled;
  const auto is_settled = [&](Doubt& doubt) {
    const bool is = is_over() || heard_ > doubt.heard || now() >= doubt.until;
    if (is) settled.push_back(std::move(doubt));
    return is;
  };
  doubts_.erase(std::remove_if(doubts_.begin(), doubts_.end(), is_settled), doubts_.end());
  for (Doubt& doubt : settled) doubt.then();
}

// ---- Gathers.

void LinkRegistry::gather(const std::string& key, std::vector<std::string> names, std::string value,
                          Time timeout, OnGathered then) {
  // A task may be destroyed unrun.
  auto gathering = std::make_shared<Gathering>(Gathering{names, std::move(then)});
  const bool is_posted = post([key, names = std::move(names), value = std::move(value), timeout,
                               gathering](LinkRegistry& core) mutable {
    if (!core.client_.has_value() || core.is_over()) return gathering->then(shuts_down());
    const std::uint64_t id = core.client_->next_id();
    core.gathers_.emplace(id, std::move(*gathering));
    core.run(core.client_->gather(std::move(key), std::move(names), std::move(value), timeout,
                                  core.now()));
  });
  if (!is_posted) gathering->then(shuts_down());
}

std::vector<std::uint64_t> LinkRegistry::gathers_with(const std::string& worker) const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, gather] : gathers_) {
    const bool has = worker.empty() || std::find(gather.names.begin(), gather.names.end(),
                                                 worker) != gather.names.end();
    if (has) ids.push_back(id);
  }
  return ids;
}

void LinkRegistry::cancel(std::uint64_t id, const absl::Status& why) {
  run(client_->cancel(id, why, now()));
}

void LinkRegistry::end_gathers_with(const std::string& worker, absl::Status why) {
  post([worker, why = std::move(why)](LinkRegistry& core) {
    for (const std::uint64_t id : core.gathers_with(worker)) core.cancel(id, why);
  });
}

void LinkRegistry::end_gathers(absl::Status why, std::function<void()> then) {
  const bool is_posted = post([why = std::move(why), then](LinkRegistry& core) {
    for (const std::uint64_t id : core.gathers_with("")) core.cancel(id, why);
    then();
  });
  if (!is_posted) then();
}

// ---- As a membership.

MembershipAndGather make_link_membership(MembershipOptions options, std::chrono::nanoseconds lease,
                                         std::chrono::nanoseconds beat,
                                         std::unique_ptr<RegistrarSeat> seat, ControlPlane& plane,
                                         Directory& directory, Scheduler& scheduler) {
  const Rendezvous& place = options.rendezvous;
  LinkRegistry::Options wanted;
  wanted.founds = place.founds;
  wanted.client.job = options.job;
  wanted.client.world_size = place.world_size;
  wanted.client.address =
      place.kind == Rendezvous::Kind::kFile ? place.path : absl::StrJoin(place.seeds, " or ");
  wanted.client.beat = beat;
  wanted.client.join_for = options.timeout;
  wanted.ask_address = options.ask_address;
  wanted.table.job = options.job;
  wanted.table.world_size = place.world_size;
  wanted.table.lease = lease;
  StartRegistry start = [registry = LinkRegistry::make(plane, scheduler, std::move(seat)),
                         wanted = std::move(wanted)](
                            const registry::Record& self,
                            Registry::Listener listener) -> std::shared_ptr<Registry> {
    LinkRegistry::Options own = wanted;
    own.client.self = self;
    registry->start(std::move(own), std::move(listener));
    return registry;
  };
  return make_registry_membership(std::move(options), std::move(start), directory, scheduler);
}

}  // namespace sinew::internal
