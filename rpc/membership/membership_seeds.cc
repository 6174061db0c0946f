// The part of MembershipCore that deals with the addresses where the job is looked for: it asks at
// all of them, finds other founders there, and calls in those who wait.

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/membership_bugs.h"
#include "sinew/rpc/membership/membership_core.h"
#include "sinew/rpc/membership/peer_membership.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// To find out whether somebody is there at all.
// One seed that is silent does not hold up a worker that has found the job at another one.
constexpr nanoseconds kOthersTime = milliseconds(500);
constexpr nanoseconds kInviteTimeout = seconds(2);
// Until it says for the first time that nobody has come, and between two times at most.
constexpr nanoseconds kFirstAlone = seconds(5);
constexpr nanoseconds kLongestAlone = seconds(60);
// Where a member answers at another seed a founder finds the job by itself, as a rule.
constexpr int kRareInvites = 8;

absl::StatusOr<SeedRound::Greeting> greeting_of(const absl::StatusOr<std::string>& reply) {
  if (!reply.ok()) return reply.status();
  const absl::StatusOr<proto::MemberList> list =
      parse_message<proto::MemberList>("a MemberList", *reply);
  if (!list.ok()) return list.status();
  return SeedRound::Greeting{decode(list->instance()), list->waits_to_found()};
}

}  // namespace

void MembershipCore::resolve(const std::string& seed, OnResolved then) {
  if (!options_.resolve) return then(*this, std::vector<std::string>{seed});
  using Addresses = std::vector<std::string>;
  options_.resolve(seed).on_done([weak = weak_from_this(),
                                  then = std::move(then)](const Future<Addresses>& done) {
    const std::shared_ptr<MembershipCore> self = weak.lock();
    if (self == nullptr) return;
    absl::StatusOr<Addresses> addresses =
        done.error() != nullptr ? absl::StatusOr<Addresses>(to_status(done.error())) : done.value();
    self->post(
        [then, addresses = std::move(addresses)](MembershipCore& core) { then(core, addresses); });
  });
}

// ---- This worker looks for the job.

void MembershipCore::ask_seeds() {
  const std::vector<std::string> seeds = dial_addresses(options_.rendezvous);
  if (seeds.size() == 1 && !options_.resolve) {
    candidates_.push_back(Contact::at(seeds.front()));
    return seek_next();
  }
  const std::uint64_t round = ++seed_round_number_;
  seed_round_.emplace(seeds.size());
  waits_for_other_seeds_ = false;
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    resolve(seeds[i], [round, i](MembershipCore& core,
                                 const absl::StatusOr<std::vector<std::string>>& addresses) {
      if (core.is_in_round(round)) core.greet_seed(i, addresses);
    });
  }
  check_round();
}

bool MembershipCore::is_in_round(std::uint64_t round) const {
  return state_ == State::kSeeking && seed_round_.has_value() && round == seed_round_number_;
}

void MembershipCore::greet_seed(std::size_t seed,
                                const absl::StatusOr<std::vector<std::string>>& addresses) {
  const std::uint64_t round = seed_round_number_;
  const nanoseconds left = std::max(deadline_ - scheduler_.now(), nanoseconds(0));
  for (const std::string& address : seed_round_->on_resolved(seed, addresses, self_.address)) {
    call_address(Contact::at(address), "sinew.member.list", {}, std::min(left, kGreetTimeout),
                 [round, address](MembershipCore& core, const absl::StatusOr<std::string>& reply) {
                   if (!core.is_in_round(round)) return;
                   core.seed_round_->on_answer(address, greeting_of(reply));
                   core.check_round();
                 });
  }
  check_round();
}

void MembershipCore::check_round() {
  if (!seed_round_.has_value()) return;
  if (seed_round_->is_done()) return finish_round();
  if (seed_round_->members().empty() || std::exchange(waits_for_other_seeds_, true)) return;
  after(kOthersTime, [round = seed_round_number_](MembershipCore& core) {
    if (core.is_in_round(round)) core.finish_round();
  });
}

void MembershipCore::finish_round() {
  const SeedRound round = *std::exchange(seed_round_, std::nullopt);
  tried_ += round.asked();
  refused_ += round.empty();
  last_failure_ = round.failures();
  if (const absl::Status conflict = round.conflict(); !conflict.ok()) {
    // Where the two can reach each other the lighter one ends in a moment.
    last_failure_ = std::string(conflict.message());
    if (!std::exchange(has_met_another_job_, true)) warn(last_failure_);
    return seek_again();
  }
  const std::vector<std::string> members = round.members();
  if (const absl::Status refusal = round.refusal(); !refusal.ok() && candidates_.empty()) {
    return fail_join(refusal);
  }
  std::transform(members.rbegin(), members.rend(), std::back_inserter(candidates_), Contact::at);
  seek_next();
}

// ---- This worker is about to found the job, and others may be, too, or have done so.

void MembershipCore::look_at_seeds() {
  const std::vector<std::string> seeds = dial_addresses(options_.rendezvous);
  const bool has_others = seeds.size() > 1 || options_.resolve != nullptr;
  if (state_ != State::kPausing || !has_others || std::exchange(looks_at_seeds_, true)) return;
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    if (seeds[i] == options_.served_seed && !options_.resolve) continue;
    resolve(seeds[i],
            [i](MembershipCore& core, const absl::StatusOr<std::vector<std::string>>& addresses) {
              if (!addresses.ok()) return;
              for (const std::string& address : *addresses) core.look_for_founder(i, address);
            });
  }
  after(PeerMembership::kInviteInterval, [](MembershipCore& core) {
    core.looks_at_seeds_ = false;
    core.look_at_seeds();
  });
}

void MembershipCore::look_for_founder(std::size_t seed, const std::string& address) {
  if (state_ != State::kPausing || address == self_.address) return;
  if (!looked_at_.insert(address).second) return;
  call_address(Contact::at(address), "sinew.member.list", {}, kInviteTimeout,
               [seed, address](MembershipCore& core, const absl::StatusOr<std::string>& reply) {
                 core.looked_at_.erase(address);
                 core.on_founder_found(seed, address, greeting_of(reply));
               });
}

void MembershipCore::on_founder_found(std::size_t seed, const std::string& address,
                                      const absl::StatusOr<SeedRound::Greeting>& greeting) {
  if (state_ != State::kPausing || !greeting.ok()) return;
  if (!greeting->waits_to_found) {
    invited_to_ = Contact::at(address);
    return seek();
  }
  // Of several that wait the one at the first place founds.
  const std::vector<std::string> seeds = dial_addresses(options_.rendezvous);
  const auto own = static_cast<std::size_t>(
      std::find(seeds.begin(), seeds.end(), options_.served_seed) - seeds.begin());
  const bool goes_first = std::tie(seed, address) < std::tie(own, self_.address);
  if (goes_first) put_off_founding();
}

// ---- Nobody has come yet.

void MembershipCore::say_alone(nanoseconds since) {
  const nanoseconds pause = std::clamp(since, kFirstAlone, kLongestAlone);
  after(pause, [since = since + pause](MembershipCore& core) {
    const bool is_alone =
        core.state_ == State::kCoordinating && !core.has_had_others_ && !core.left_.has_value();
    if (!is_alone) return;
    core.warn(absl::StrCat("worker '", core.self_.worker.name, "' has founded ", core.job_text(),
                           ", and nobody has come within ", seconds_text(since),
                           "; others join it ", core.place_text()));
    core.say_alone(since);
  });
}

std::string MembershipCore::place_text() const {
  if (file_ != nullptr) return absl::StrCat("by the file '", file_->path(), "'");
  return absl::StrCat("at '", absl::StrJoin(dial_addresses(options_.rendezvous), "' or '"), "'");
}

// ---- This worker coordinates, and somebody may wait to be called in.

// Who comes back to a seed waits there for others to come, and knows of no job.
std::vector<std::string> MembershipCore::seeds_without_member() const {
  std::vector<std::string> seeds;
  const bool leads = state_ == State::kCoordinating || state_ == State::kTakingOver;
  if (SINEW_MEMBERSHIP_BUG(kNobodyCallsFounder) || !leads || file_) return seeds;
  for (const std::string& seed : dial_addresses(options_.rendezvous)) {
    const auto holder = seed_holders_.find(seed);
    const bool is_held =
        seed == options_.served_seed ||
        (holder != seed_holders_.end() &&
         std::any_of(view_.members.begin(), view_.members.end(), [&](const Member& member) {
           return member.worker.incarnation == holder->second && !is_lost(member.worker);
         }));
    if (!is_held) seeds.push_back(seed);
  }
  return seeds;
}

void MembershipCore::invite() {
  const std::vector<std::string> seeds = seeds_without_member();
  if (seeds.empty() || std::exchange(inviting_, true)) return;
  const bool others_are_held = seeds.size() < options_.rendezvous.seeds.size();
  if (!others_are_held || invite_ticks_++ % kRareInvites == 0) {
    for (const std::string& seed : seeds) invite_at_seed(seed);
  }
  after(PeerMembership::kInviteInterval, [](MembershipCore& core) {
    core.inviting_ = false;
    core.invite();
  });
}

void MembershipCore::invite_at_seed(const std::string& seed) {
  resolve(seed,
          [seed](MembershipCore& core, const absl::StatusOr<std::vector<std::string>>& addresses) {
            if (!addresses.ok()) return;
            for (const std::string& address : *addresses) {
              if (address != core.self_.address) core.invite_at(Contact::at(address), seed);
            }
          });
}

// Nobody is there most of the time.
void MembershipCore::invite_at(const Contact& contact, const std::string& seed) {
  proto::MemberList list;
  encode(view_, list);
  call_address(contact, kInviteMethod, list.SerializeAsString(), kInviteTimeout,
               [address = contact.address, seed](MembershipCore& core,
                                                 const absl::StatusOr<std::string>& reply) {
                 core.on_invited(address, seed, reply);
               });
}

void MembershipCore::on_invited(const std::string& address, const std::string& seed,
                                const absl::StatusOr<std::string>& reply) {
  if (absl::IsAlreadyExists(reply.status())) {
    warn_of_another_job(absl::StrCat("who answers at '", address, "'"));
  }
  proto::WorkerIdentity holder;
  if (!reply.ok() || !holder.ParseFromString(*reply) || seed.empty()) return;
  seed_holders_[seed] = Incarnation{holder.incarnation()};
}

}  // namespace sinew::internal
