#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "sinew/rpc/membership/etcd/etcd_registry.h"

namespace sinew::internal::etcd {
namespace {

// Who waits for a place looks so often.
constexpr std::chrono::milliseconds kLook{250};

std::string missing_ranks(const EtcdList& list, std::int32_t world_size) {
  std::set<std::int32_t> come;
  for (const auto& [id, record] : list.members()) come.insert(record.worker.rank);
  std::vector<std::int32_t> missing;
  for (std::int32_t rank = 0; rank < world_size && missing.size() < 8; ++rank) {
    if (come.count(rank) == 0) missing.push_back(rank);
  }
  return absl::StrCat("rank ", absl::StrJoin(missing, ", "), " of ", world_size, " has not come");
}

}  // namespace

void EtcdRegistry::grant(std::function<void()> then) {
  pb::LeaseGrantRequest request;
  request.set_ttl(std::chrono::duration_cast<std::chrono::seconds>(options_.lease).count());
  const Time sent = now();
  client_.call(std::move(request), left(),
               [this, sent, then = std::move(then)](absl::StatusOr<pb::LeaseGrantResponse> lease) {
                 if (state_ != MembershipState::kJoining) return;
                 if (!lease.ok()) return fail_join(lease.status());
                 was_away_ = was_away_ || now() > sent + options_.settle;
                 lease_ = lease->id();
                 lease_sent_ = sent;
                 then();
               });
}

void EtcdRegistry::look() {
  if (state_ != MembershipState::kJoining || has_claimed_) return;
  client_.call(look_request(layout_, options_.wanted, lease_), left(),
               [this](absl::StatusOr<pb::TxnResponse> seen) { looked(seen); });
}

void EtcdRegistry::looked(const absl::StatusOr<pb::TxnResponse>& seen) {
  if (state_ != MembershipState::kJoining || has_claimed_) return;
  if (seen.status().code() == absl::StatusCode::kNotFound) {
    // The lease has ended while etcd was away.
    was_away_ = true;
    return grant([this] { look(); });
  }
  if (!seen.ok()) return fail_join(seen.status());
  Place place = find_place(layout_, options_.wanted, *seen);
  const auto* const claimed = std::get_if<Claim>(&place);
  const bool founds = claimed != nullptr && claimed->founds;
  if (!founds && !std::holds_alternative<Empty>(place)) empty_.forget();
  if (std::holds_alternative<Placed>(place)) {
    has_claimed_ = true;
    load();
  } else if (claimed != nullptr) {
    // Members are about to write again what etcd has lost.
    if (founds && was_away_ && !empty_.has_settled(0, now(), options_.settle)) {
      return look_soon("etcd has just come back, and knows of no job");
    }
    claim(*claimed);
  } else if (const auto* held = std::get_if<Held>(&place)) {
    ask_holder(*held);
  } else if (const auto* empty = std::get_if<Empty>(&place)) {
    // Its members may be about to come back, after etcd was away.
    if (empty_.has_settled(empty->claim.job_revision, now(), options_.settle)) {
      return claim(empty->claim);
    }
    look_soon("the job at etcd has no members any more");
  } else if (std::holds_alternative<Returning>(place)) {
    look_soon("etcd has just come back, and its members have a lease to come back to it");
  } else if (std::holds_alternative<NotFounded>(place)) {
    look_soon(absl::StrCat("no worker has founded job '", options_.wanted.job, "' at etcd"));
  } else {
    fail_join(std::get<absl::Status>(std::move(place)));
  }
}

void EtcdRegistry::look_soon(std::string why) {
  why_waits_ = std::move(why);
  client_.run_after(kLook, [this] { look(); });
}

void EtcdRegistry::ask_holder(const Held& held) {
  pb::LeaseTimeToLiveRequest request;
  request.set_id(held.lease);
  client_.call(std::move(request), left(),
               [this, held, asked = now()](absl::StatusOr<pb::LeaseTimeToLiveResponse> time) {
                 if (state_ != MembershipState::kJoining) return;
                 if (!time.ok() && time.status().code() != absl::StatusCode::kNotFound) {
                   return fail_join(time.status());
                 }
                 if (time.ok() && holder_.lives(held.lease, time->ttl(), asked, now())) {
                   return fail_join(absl::AlreadyExistsError(absl::StrCat(
                       held.why, " in job '", options_.wanted.job, "', and it renews its lease")));
                 }
                 look_soon(absl::StrCat(held.why, ", and its lease has not ended"));
               });
}

void EtcdRegistry::claim(const Claim& claim) {
  client_.call(claim_request(layout_, options_.wanted, claim, lease_), left(),
               [this](absl::StatusOr<pb::TxnResponse> claimed) {
                 if (state_ != MembershipState::kJoining || has_claimed_) return;
                 if (!claimed.ok() || !claimed->succeeded()) {
                   // Another worker was faster, or the lease has ended: look again.
                   if (claimed.ok() || claimed.status().code() == absl::StatusCode::kNotFound) {
                     return look();
                   }
                   return fail_join(claimed.status());
                 }
                 has_claimed_ = true;
                 load();
               });
}

void EtcdRegistry::load() {
  const std::string list = layout_.list();
  const Time timeout = is_in() ? options_.join_for : left();
  client_.list(list, end_of_prefix(list), timeout,
               [this](absl::StatusOr<EtcdClient::Listing> listing) {
                 if (is_over()) return;
                 if (!listing.ok()) {
                   if (!is_in()) return fail_join(listing.status());
                   return client_.run_after(kLook, [this] { load(); });
                 }
                 if (!list_.has_value()) {
                   list_.emplace(layout_, EtcdList::Options{self(), options_.lease, options_.judge},
                                 lease_sent_);
                 }
                 watch(listing->revision + 1);
                 ListEffects effects = list_->reset(listing->kvs, now());
                 if (job_.empty()) job_ = list_->job();
                 handle(std::move(effects));
               });
}

void EtcdRegistry::watch(std::int64_t from_revision) {
  EtcdClient::Watcher watcher;
  watcher.on_events = [this](const std::vector<Event>& events) {
    if (!is_over()) handle(list_->apply(events, now()));
  };
  watcher.on_end = [this](absl::Status why) {
    if (is_over() || why.code() == absl::StatusCode::kCancelled) return;
    if (why.code() == absl::StatusCode::kOutOfRange) return load();
    if (!is_in()) return fail_join(std::move(why));
    away_ = registry::away_error(why.message());
    set_state(MembershipState::kSuspected, away_);
    client_.run_after(options_.lease, [this] { load(); });
  };
  const std::string list = layout_.list();
  client_.unwatch(watch_);
  watch_ = client_.watch(list, end_of_prefix(list), from_revision, std::move(watcher));
}

void EtcdRegistry::admit() {
  const std::int32_t world_size = options_.wanted.world_size;
  if (state_ != MembershipState::kJoining || !list_.has_value() || list_->self() == nullptr) return;
  if (world_size > 0 && !list_->is_complete()) {
    why_waits_ = missing_ranks(*list_, world_size);
    if (!list_->has_all_ranks(world_size)) return;
    pb::TxnRequest txn;
    add(txn, is_absent(layout_.complete()));
    std::map<std::int32_t, std::string> names;
    for (const auto& [id, record] : list_->members()) {
      names.emplace(record.worker.rank, record.worker.name);
    }
    add_success(txn, put(layout_.complete(),
                         absl::StrJoin(names, "\n",
                                       [](std::string* out, const auto& each) {
                                         absl::StrAppend(out, each.second);
                                       }),
                         0));
    // The watch tells.
    return client_.call(std::move(txn), left(), [](const auto&) {});
  }
  proto::EtcdJob job;
  if (!job.ParseFromString(job_)) return;
  {
    MutexLock lock(mutex_);
    view_.instance = decode_instance(job);
    view_.world_names = list_->world_names().value_or(std::vector<std::string>());
  }
  gathers_.set_self(list_->self()->worker.name, lease_);
  publish();
  set_state(MembershipState::kMember, absl::OkStatus());
  for (const auto& [id, record] : std::map<Incarnation, registry::Record>(list_->members())) {
    if (id != self()) listener_.on_member({record, std::nullopt, {}});
  }
}

void EtcdRegistry::fail_join(absl::Status why) {
  if (state_ != MembershipState::kJoining) return;
  // The client has tried all that time.
  const bool is_late = why.ok() || why.code() == absl::StatusCode::kDeadlineExceeded ||
                       why.code() == absl::StatusCode::kUnavailable;
  if (is_late) {
    why = absl::DeadlineExceededError(absl::StrCat(
        "worker '", options_.wanted.self.worker.name, "' did not get into job '",
        options_.wanted.job, "' within ", absl::FormatDuration(absl::FromChrono(options_.join_for)),
        ": ", why_waits_.empty() ? std::string(why.message()) : why_waits_));
  }
  set_state(MembershipState::kLeft, std::move(why));
  pb::LeaseRevokeRequest revoke;
  revoke.set_id(lease_);
  if (lease_ != 0) client_.call(std::move(revoke), options_.leave_for, [](const auto&) {});
}

}  // namespace sinew::internal::etcd
