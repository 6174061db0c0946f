#include "sinew/rpc/membership/etcd/etcd_registry.h"

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sinew::internal::etcd {
namespace {

constexpr std::chrono::milliseconds kTick{100};

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdRegistry>> EtcdRegistry::start(
    std::unique_ptr<EtcdClient> client, Options options, Listener listener) {
  if (absl::Status status = check(options.wanted); !status.ok()) return status;
  if (options.lease < std::chrono::seconds(2) || options.prefix.empty() ||
      options.prefix.back() == '/') {
    return absl::InvalidArgumentError(
        "a lease at etcd lasts two seconds at least, and a prefix does not end with a slash");
  }
  return std::unique_ptr<EtcdRegistry>(
      new EtcdRegistry(std::move(client), std::move(options), std::move(listener)));
}

EtcdRegistry::EtcdRegistry(std::unique_ptr<EtcdClient> client, Options options, Listener listener)
    : owned_client_(std::move(client)),
      client_(*owned_client_),
      options_(std::move(options)),
      listener_(std::move(listener)),
      layout_(options_.prefix, options_.wanted.job),
      gathers_(client_, layout_, options_.lease) {
  client_.post([this] {
    join_until_ = now() + options_.join_for;
    // What etcd itself has said in that time comes first.
    client_.run_after(options_.join_for + kTick, [this] { fail_join(absl::OkStatus()); });
    grant([this] {
      renew();
      tick();
      look();
    });
  });
}

EtcdRegistry::~EtcdRegistry() {
  client_.post(
      [this] { set_state(MembershipState::kLeft, absl::CancelledError("this worker ends")); });
  owned_client_.reset();
}

absl::Status EtcdRegistry::not_in() const {
  if (state_ == MembershipState::kEvicted) {
    return absl::UnavailableError("this worker is not in the job any more");
  }
  return absl::FailedPreconditionError("this worker is not in the job");
}

Registry::View EtcdRegistry::view() const {
  MutexLock lock(mutex_);
  return view_;
}

void EtcdRegistry::publish() {
  std::vector<registry::Record> members;
  if (list_.has_value()) {
    for (const auto& [id, record] : list_->members()) members.push_back(record);
  }
  MutexLock lock(mutex_);
  view_.members = std::move(members);
}

void EtcdRegistry::set_state(MembershipState state, absl::Status why) {
  if (state_ == state || is_over()) return;
  state_ = state;
  {
    MutexLock lock(mutex_);
    view_.state = state;
  }
  const bool is_away = state == MembershipState::kSuspected;
  if (is_away) away_since_ = now();
  gathers_.set_away(is_away ? why : absl::OkStatus());
  if (is_over()) {
    client_.unwatch(watch_);
    gathers_.fail_all(why.ok() ? absl::CancelledError("this worker has left the job") : why);
  }
  listener_.on_state(state, why);
}

// --- The lease ----------------------------------------------------------------------------------

void EtcdRegistry::renew() {
  if (is_over()) return;
  pb::LeaseKeepAliveRequest request;
  request.set_id(lease_);
  const Time sent = now();
  client_.call(std::move(request), options_.lease / 3,
               [this, sent, lease = lease_](absl::StatusOr<pb::LeaseKeepAliveResponse> answer) {
                 renewed(sent, lease, std::move(answer));
               });
}

void EtcdRegistry::renewed(Time sent, std::int64_t lease,
                           absl::StatusOr<pb::LeaseKeepAliveResponse> answer) {
  if (is_over()) return;
  // Without an answer the next one is asked for at once: the client makes the pauses.
  client_.run_after(
      answer.ok() ? std::max(options_.lease / 3 - (now() - sent), Time(kTick)) : Time(kTick),
      [this] { renew(); });
  if (!answer.ok()) {
    if (is_in() && list_->is_away(now())) {
      away_ = registry::away_error(answer.status().message());
      set_state(MembershipState::kSuspected, away_);
      if (now() > away_since_ + kOutlast * options_.lease) gathers_.fail_all(away_);
    }
    return;
  }
  // Another one has taken its place meanwhile.
  if (lease != lease_ || comes_back_) return;
  if (answer->ttl() <= 0) {
    if (list_.has_value())
      handle(SelfGone{!list_->is_returning(now()), Gone::kSilent,
                      "etcd has ended this worker's lease"});
    return;
  }
  if (!list_.has_value()) {
    lease_sent_ = sent;
    return;
  }
  list_->renewed(sent, now());
  if (is_in()) set_state(MembershipState::kMember, absl::OkStatus());
}

void EtcdRegistry::when_sure(Time patience, std::function<void()> then) {
  client_.post([this, patience, then = std::move(then)]() mutable {
    ask_until_sure(now() + patience, std::move(then));
  });
}

void EtcdRegistry::ask_until_sure(Time until, std::function<void()> then) {
  if (!is_in() || now() >= until) return then();
  pb::LeaseKeepAliveRequest request;
  request.set_id(lease_);
  client_.call(std::move(request), until - now(),
               [this, until, lease = lease_,
                then = std::move(then)](absl::StatusOr<pb::LeaseKeepAliveResponse> answer) mutable {
                 // The lease has ended: this worker is out, or comes back, as what reads that
                 // finds.
                 const bool lives = answer.ok() && answer->ttl() > 0 && lease == lease_;
                 if (lives && !comes_back_) return then();
                 client_.run_after(kTick, [this, until, then = std::move(then)]() mutable {
                   ask_until_sure(until, std::move(then));
                 });
               });
}

void EtcdRegistry::tick() {
  if (is_over()) return;
  client_.run_after(kTick, [this] { tick(); });
  if (!list_.has_value()) return;
  const bool is_returning = list_->is_returning(now());
  handle(list_->tick(now()));
  if (gathers_.set_returning(is_returning)) gathers_.look_again();
}

// --- What the list tells ------------------------------------------------------------------------

void EtcdRegistry::handle(ListEffects effects) {
  bool somebody_is_gone = false;
  if (!effects.empty()) publish();
  for (auto& effect : effects) {
    if (is_over()) return;
    if (const auto* news = std::get_if<MemberNews>(&effect)) {
      somebody_is_gone = somebody_is_gone || news->gone.has_value();
      if (is_in()) listener_.on_member(*news);
    } else if (const auto* gone = std::get_if<SayGone>(&effect)) {
      say(*gone);
    } else if (const auto* self_gone = std::get_if<SelfGone>(&effect)) {
      handle(*self_gone);
    } else {
      gathers_.on_end(std::get<GatherNews>(effect));
    }
  }
  if (somebody_is_gone) gathers_.look_again();
  admit();
}

void EtcdRegistry::handle(SelfGone gone) {
  if (leaves_ || is_over()) return;
  if (!gone.is_out && list_->self() != nullptr) return come_back();
  absl::Status why = absl::AbortedError(absl::StrCat("worker '", options_.wanted.self.worker.name,
                                                     "' was evicted from the job: ", gone.reason));
  if (!is_in()) return fail_join(std::move(why));
  set_state(MembershipState::kEvicted, std::move(why));
}

void EtcdRegistry::say(const SayGone& gone) {
  client_.call(gone_request(layout_, gone.member, gone.why, gone.reason, gone.stays, lease_),
               options_.lease, [](const auto&) {});
}

void EtcdRegistry::report_lost(Incarnation member, std::string reason, bool has_ended) {
  client_.post([this, member, reason = std::move(reason), has_ended] {
    if (!is_in() || member == self()) return;
    const auto found = list_->members().find(member);
    if (found == list_->members().end()) return;
    if (has_ended) return say({found->second, Gone::kProcessEnded, reason, {}});
    pb::PutRequest put;
    put.set_key(layout_.report(self(), member));
    put.set_value(reason);
    put.set_lease(lease_);
    client_.call(std::move(put), options_.lease, [](const auto&) {});
  });
}

// --- After etcd was away ------------------------------------------------------------------------

void EtcdRegistry::come_back() {
  if (std::exchange(comes_back_, true)) return;
  if (has_return_lease_) return write_keys_again(false);
  pb::LeaseGrantRequest request;
  request.set_ttl(std::chrono::duration_cast<std::chrono::seconds>(options_.lease).count());
  const Time sent = now();
  client_.call(std::move(request), options_.lease,
               [this, sent](absl::StatusOr<pb::LeaseGrantResponse> lease) {
                 if (is_over()) return;
                 if (!lease.ok()) return come_back_soon();
                 lease_ = lease->id();
                 lease_sent_ = sent;
                 has_return_lease_ = true;
                 write_keys_again(false);
               });
}

void EtcdRegistry::come_back_soon() {
  client_.run_after(kTick, [this] {
    comes_back_ = false;
    if (!is_over()) come_back();
  });
}

void EtcdRegistry::write_keys_again(bool founds) {
  client_.call(return_request(layout_, *list_->self(), job_, founds, lease_), options_.lease,
               [this, founds](absl::StatusOr<pb::TxnResponse> seen) {
                 if (is_over()) return;
                 if (seen.ok()) return came_back(*seen, founds);
                 if (seen.status().code() == absl::StatusCode::kNotFound) has_return_lease_ = false;
                 come_back_soon();
               });
}

void EtcdRegistry::came_back(const pb::TxnResponse& seen, bool founds) {
  const registry::Record record = *list_->self();
  if (!seen.succeeded()) {
    bool lost_all = false;
    const auto out = why_out(record, job_, seen, lost_all);
    // Another member may have founded it again meanwhile.
    if (founds && !lost_all) return write_keys_again(false);
    if (out.has_value()) return handle(SelfGone{true, Gone::kSilent, *out});
    if (lost_all) return write_keys_again(true);
  }
  comes_back_ = false;
  has_return_lease_ = false;
  list_->returned(seen.header().revision());
  list_->renewed(lease_sent_, now());
  if (!is_in()) return;
  // The others have so long to do the same; no other worker gets their places until then.
  client_.run_after(options_.lease, [this] {
    pb::TxnRequest over;
    add_success(over, remove(layout_.returning()));
    client_.call(std::move(over), options_.lease, [](const auto&) {});
  });
  gathers_.set_returning(true);
  gathers_.set_self(record.worker.name, lease_);
  set_state(MembershipState::kMember, absl::OkStatus());
}

// --- Verbs --------------------------------------------------------------------------------------

void EtcdRegistry::leave() {
  client_.post([this] {
    if (std::exchange(leaves_, true) || is_over()) return;
    client_.run_after(options_.leave_for, [this] {
      set_state(
          MembershipState::kLeft,
          absl::DeadlineExceededError("etcd does not answer: the others learn that this worker "
                                      "has left when its lease ends"));
    });
    const bool was_in = has_claimed_ && list_.has_value() && list_->self() != nullptr;
    pb::LeaseGrantRequest grant;
    grant.set_ttl(std::chrono::duration_cast<std::chrono::seconds>(4 * options_.lease).count());
    const auto end = [this] {
      pb::LeaseRevokeRequest revoke;
      revoke.set_id(lease_);
      client_.call(std::move(revoke), options_.leave_for,
                   [this](const auto&) { set_state(MembershipState::kLeft, absl::OkStatus()); });
    };
    if (!was_in) return end();
    // Outlives this worker's own lease, for those who look later.
    client_.call(std::move(grant), options_.leave_for, [this, end](const auto& lease) {
      if (!lease.ok()) return end();
      client_.call(
          gone_request(layout_, *list_->self(), Gone::kLeft, "it has left", {}, lease->id()),
          options_.leave_for, [this, end](const auto&) {
            // The next ones found the job at once.
            pb::TxnRequest txn;
            add(txn, is_absent(layout_.members(), end_of_prefix(layout_.members())));
            add_success(txn, remove(layout_.job()));
            client_.call(std::move(txn), options_.leave_for, [end](const auto&) { end(); });
          });
    });
  });
}

void EtcdRegistry::give_up(Time patience) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> ended = done->get_future();
  client_.post([this, patience, done] {
    if (is_over() || lease_ == 0) return done->set_value();
    pb::LeaseRevokeRequest revoke;
    revoke.set_id(lease_);
    set_state(MembershipState::kLeft, absl::CancelledError("this worker ends"));
    client_.call(std::move(revoke), patience, [done](const auto&) { done->set_value(); });
  });
  ended.wait_for(patience);
}

void EtcdRegistry::end_gathers_with(const std::string& worker, absl::Status why) {
  client_.post([this, worker, why = std::move(why)] { gathers_.fail(worker, why); });
}

void EtcdRegistry::end_gathers(absl::Status why, std::function<void()> then) {
  client_.post([this, why = std::move(why), then = std::move(then)] {
    gathers_.fail_all(why);
    then();
  });
}

void EtcdRegistry::gather(const std::string& key, std::vector<std::string> names, std::string value,
                          Time timeout, OnGathered then) {
  client_.post([this, key, names = std::move(names), value = std::move(value), timeout,
                then = std::move(then)]() mutable {
    if (!is_in()) return then(not_in());
    if (state_ == MembershipState::kSuspected && !names.empty()) return then(away_);
    gathers_.enter(key, std::move(names), std::move(value), timeout, std::move(then));
  });
}

}  // namespace sinew::internal::etcd
