#include "sinew/rpc/membership/registry/roster.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/membership/registry/registry_bugs.h"

namespace sinew::internal::registry {
namespace {

std::string shown(const WorkerInfo& worker) {
  return absl::StrCat("worker '", worker.name, "' (rank ", worker.rank, ")");
}

}  // namespace

Roster::Roster(const Options& options, Time now)
    : options_(options),
      now_(now),
      is_founded_(options.world_size == 0),
      losses_(options.judge, options.lease) {
  window_.emplace(options, now);
}

// --- Requests -----------------------------------------------------------------------------------

void Roster::heard(Incarnation from, std::uint64_t echo, Time now, Effects& out) {
  now_ = now;
  ++token_;
  const auto member = members_.find(from);
  if (member != members_.end()) {
    member->second.heard = now;
    refuse_for(member->second.record.worker, 0, echo, out);
    return;
  }
  const auto since = waits_since_.find(from);
  if (since == waits_since_.end()) return;
  Waiting& waiting = waiting_.at(since->second);
  waiting.heard = now;
  refuse_for(WorkerInfo(waiting.wanted.worker), since->second, echo, out);
}

// Refuses those that wait for a name or rank whose holder was there first and has been heard since
// they asked.
void Roster::refuse_for(const WorkerInfo& holder, std::uint64_t after, std::uint64_t echo,
                        Effects& out) {
  if (SINEW_REGISTRY_BUG(kAnyBeatRefuses)) echo = token_;
  std::vector<Incarnation> refused;
  // An echo of what was never said is none.
  for (auto it = waiting_.upper_bound(after); echo <= token_ && it != waiting_.end(); ++it) {
    const WorkerInfo& wanted = it->second.wanted.worker;
    if (it->first > echo || !conflict(holder, wanted)) continue;
    const std::string text =
        holder.name == wanted.name
            ? absl::StrCat("name '", wanted.name, "' is already used by rank ", holder.rank,
                           ", which is alive; choose another name")
            : absl::StrCat("rank ", wanted.rank, " is already used by worker '", holder.name,
                           "', which is alive; choose another rank for '", wanted.name, "'");
    send(wanted.incarnation, Refused{absl::AlreadyExistsError(text)}, out);
    refused.push_back(wanted.incarnation);
  }
  for (const Incarnation joiner : refused) stop_waiting(joiner);
}

absl::Status Roster::check(Incarnation from, const Record& self, const std::string& job,
                           std::int32_t world_size) const {
  const WorkerInfo& worker = self.worker;
  absl::Status name = validate_worker_name(worker.name);
  if (!name.ok()) return name;
  if (worker.incarnation != from || from.value == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(shown(worker), " gives another incarnation than its own"));
  }
  if (job != options_.job) {
    return absl::FailedPreconditionError(
        absl::StrCat(shown(worker), " is of another job; here is job '", options_.job, "'"));
  }
  if (world_size != options_.world_size) {
    return absl::FailedPreconditionError(
        absl::StrCat(shown(worker), " expects ", world_size, " workers, and the job has ",
                     options_.world_size, " (0: any number); start all with one world size"));
  }
  const std::size_t ranks =
      world_size > 0 ? static_cast<std::size_t>(world_size) : options_.limits.members;
  if (worker.rank < -1 || (worker.rank >= 0 && static_cast<std::size_t>(worker.rank) >= ranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat(shown(worker), " wants a rank that is not below ", ranks));
  }
  if (self.details.size() > options_.limits.details_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(shown(worker), " describes itself in more than ",
                                                   options_.limits.details_bytes, " bytes"));
  }
  return absl::OkStatus();
}

void Roster::join(Incarnation from, const Join& join, Time now, Effects& out) {
  // The answer was lost.
  if (find(from) != nullptr) return send(from, list(), out);
  if (gone_.count(from) > 0 || (window_.has_value() && window_->has_come(from))) {
    return send_away(from, out);
  }
  const absl::Status status = check(from, join.self, join.job, join.world_size);
  if (!status.ok()) return send(from, Refused{status}, out);
  if (waits_since_.count(from) == 0) {
    if (waiting_.size() >= options_.limits.waiting) {
      return send(from, Refused{absl::ResourceExhaustedError("too many workers wait to join")},
                  out);
    }
    // Of two that wait for one place the earlier one has it, if it lives.
    for (const auto& [since, other] : waiting_) {
      if (!conflict(other.wanted.worker, join.self.worker)) continue;
      send(other.wanted.worker.incarnation, Probe{}, out);
    }
    waits_since_[from] = token_;
    waiting_[token_] = {join.self, now};
    settle(now, out);
    admit(now, out);
  }
  if (waits_since_.count(from) == 0) return;
  if (const WorkerInfo* holder = holder_of(join.self.worker))
    send(holder->incarnation, Probe{}, out);
  send(from, Wait{why_waits(join.self.worker)}, out);
}

void Roster::come_back(Incarnation from, const Return& back, Effects& out) {
  if (find(from) != nullptr) return send(from, list(), out);
  if (gone_.count(from) > 0) return send_away(from, out);
  const absl::Status status = check(from, back.self, back.job, back.world_size);
  const bool is_counted = SINEW_REGISTRY_BUG(kEpochWraps) || back.version.epoch <= kLastEpoch;
  if (!status.ok() || back.self.worker.rank < 0 || !is_counted ||
      back.known.size() > options_.limits.members) {
    return send_out(from, Gone::kOtherJob, std::string(status.message()), out);
  }
  // Who was in here, and is not any more, is out; so is who belongs to another start of the job.
  if (back.version.registrar == options_.registrar) return send_away(from, out);
  if (back.instance.attempt != options_.instance.attempt) {
    return send_out(from, Gone::kOtherJob, "", out);
  }
  if (!window_.has_value()) return send_out(from, Gone::kNotReturned, "", out);
  const bool is_new = !window_->has_come(from);
  if (!window_->add(back)) return send_out(from, Gone::kNotReturned, "too many come back", out);
  stop_waiting(from);
  raise_epoch(back.version.epoch);
  settle(now_, out);
  // Late, but without a conflict.
  const auto is_free = [&] {
    const ReturnWindow::Claim& claim = window_->claim_of(from);
    return (!instance_.has_value() || *instance_ == claim.instance) &&
           window_->holder_of(claim.record.worker) == nullptr &&
           std::none_of(members_.begin(), members_.end(), [&](const auto& each) {
             return conflict(each.second.record.worker, claim.record.worker);
           });
  };
  if (is_new && is_settled_ && window_.has_value() && find(from) == nullptr && is_free()) {
    instance_ = back.instance;
    is_founded_ = true;
    add(back.self, true, now_, out);
    admit(now_, out);
  }
  if (find(from) == nullptr && gone_.count(from) == 0) {
    send(from, Wait{"the registrar was started again, and hears who else comes back"}, out);
  }
}

void Roster::renew(Incarnation from, const Renew& renew, Effects& out) {
  if (find(from) == nullptr) return send_away(from, out);
  const bool is_ours = renew.version.registrar == options_.registrar;
  if (SINEW_REGISTRY_BUG(kNoCatchUp) || (is_ours && renew.version.count == count_)) {
    return send(from, Renewed{{epoch_, options_.registrar, count_}}, out);
  }
  std::optional<Update> update;
  if (is_ours) update = changes_since(renew.version.count);
  if (update.has_value()) return send(from, *std::move(update), out);
  send(from, list(), out);
}

void Roster::leave(Incarnation from, const Leave& leave, Effects& out) {
  // Who has not come back yet need not be waited for.
  const bool is_known =
      find(from) != nullptr || waits_since_.count(from) > 0 || window_.has_value();
  if (is_known && leave.is_abrupt) return remove(from, Gone::kProcessEnded, "it has ended", out);
  if (is_known) return remove(from, Gone::kLeft, "", out);
  send(from, Out{Gone::kLeft, ""}, out);
}

void Roster::report(Incarnation from, const Report& report, Time now, Effects& out) {
  if (find(report.about) == nullptr || report.about == from) return;
  if (SINEW_REGISTRY_BUG(kOneWordEvicts)) {
    return remove(report.about, Gone::kLostEachOther, report.reason, out);
  }
  losses_.add(from, report.about, now, options_.limits.reports_each);
}

void Roster::ended(Incarnation worker, const std::string& reason, Effects& out) {
  if (window_.has_value()) window_->drop(worker);
  if (find(worker) != nullptr || waits_since_.count(worker) > 0) {
    remove(worker, Gone::kProcessEnded, reason, out);
  }
}

void Roster::send_away(Incarnation from, Effects& out) const {
  if (SINEW_REGISTRY_BUG(kOutIsSilent)) return;
  const auto gone = gone_.find(from);
  if (gone != gone_.end()) return send(from, gone->second, out);
  if (window_.has_value() && window_->has_come(from)) {
    return send(from, Wait{"the registrar was started again, and hears who else comes back"}, out);
  }
  if (waits_since_.count(from) > 0) return send(from, Wait{"it has not joined yet"}, out);
  if (window_.has_value()) return send(from, ComeBack{}, out);
  send(from, Out{Gone::kUnknown, "the registrar does not know it"}, out);
}

void Roster::tick(Time now, Effects& out) {
  now_ = now;
  ++token_;
  settle(now, out);
  std::vector<Incarnation> silent;
  for (const auto& [order, waiting] : waiting_) {
    if (now >= waiting.heard + options_.lease) silent.push_back(waiting.wanted.worker.incarnation);
  }
  for (const Incarnation joiner : silent) stop_waiting(joiner);
  silent.clear();
  for (const auto& [incarnation, member] : members_) {
    if (now >= member.heard + options_.lease) silent.push_back(incarnation);
  }
  if (SINEW_REGISTRY_BUG(kLossForgotten)) silent.clear();
  for (const Incarnation member : silent) remove(member, Gone::kSilent, "", out);
  const auto rank_of = [this](Incarnation member) {
    return members_.at(member).record.worker.rank;
  };
  while (const auto verdict = losses_.judge(now, {members_.size(), rank_of})) {
    const std::string both = shown(*find(verdict->stays));
    remove(verdict->goes, Gone::kLostEachOther,
           verdict->both_say_so ? absl::StrCat("it and ", both, " have lost each other")
                                : absl::StrCat("it and ", both, " disagree on who is there"),
           out);
  }
  admit(now, out);
}

// --- The list -----------------------------------------------------------------------------------

void Roster::send(Incarnation to, Answer answer, Effects& out) const {
  out.push_back({{to}, token_, std::move(answer)});
}

const WorkerInfo* Roster::find(Incarnation member) const {
  const auto found = members_.find(member);
  return found == members_.end() ? nullptr : &found->second.record.worker;
}

const WorkerInfo* Roster::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : find(found->second);
}

std::vector<std::string> Roster::names() const {
  std::vector<std::string> names;
  for (const auto& [name, incarnation] : by_name_) names.push_back(name);
  return names;
}

List Roster::list() const {
  List list{{epoch_, options_.registrar, count_},
            instance_.value_or(options_.instance),
            {},
            window_.has_value()};
  for (const auto& [rank, incarnation] : by_rank_)
    list.members.push_back(members_.at(incarnation).record);
  return list;
}

void Roster::add(const Record& record, bool has_returned, Time now, Effects& out) {
  const WorkerInfo& worker = record.worker;
  members_[worker.incarnation] = {record, now, has_returned};
  by_name_[worker.name] = worker.incarnation;
  by_rank_[worker.rank] = worker.incarnation;
  note({record, std::nullopt, ""});
  // Whole once all that come in at this moment are in.
  out.push_back({{worker.incarnation}, token_, List{}});
}

void Roster::remove(Incarnation member, Gone why, const std::string& reason, Effects& out) {
  if (const auto found = members_.find(member); found != members_.end()) {
    const Record record = found->second.record;
    by_name_.erase(record.worker.name);
    by_rank_.erase(record.worker.rank);
    members_.erase(found);
    departed_.push_back(record.worker);
    note({{record.worker, ""}, why, reason.substr(0, options_.limits.reason_bytes)});
  }
  losses_.drop(member);
  stop_waiting(member);
  if (window_.has_value()) window_->drop(member);
  send_out(member, why, reason, out);
}

void Roster::send_out(Incarnation worker, Gone why, const std::string& reason, Effects& out) {
  const Out text{why,
                 reason.empty() ? to_text(why) : reason.substr(0, options_.limits.reason_bytes)};
  if (!SINEW_REGISTRY_BUG(kOutIsSilent)) send(worker, text, out);
  if (!gone_.emplace(worker, text).second) return;
  gone_order_.push_back(worker);
  if (gone_order_.size() <= options_.limits.gone) return;
  gone_.erase(gone_order_.front());
  gone_order_.pop_front();
}

void Roster::note(Change change) {
  ++count_;
  log_.push_back(std::move(change));
}

std::optional<Update> Roster::changes_since(std::uint64_t count) const {
  if (count > count_ || count_ - count > log_.size()) return std::nullopt;
  const auto first = log_.end() - static_cast<std::ptrdiff_t>(count_ - count);
  return Update{count, {epoch_, options_.registrar, count_}, {first, log_.end()}};
}

std::vector<WorkerInfo> Roster::publish(Effects& out) {
  for (Send& send : out) {
    if (std::holds_alternative<List>(send.answer)) send.answer = list();
  }
  if (published_ != count_) {
    std::vector<Incarnation> all;
    for (const auto& [incarnation, member] : members_) all.push_back(incarnation);
    if (!all.empty()) out.push_back({std::move(all), token_, *changes_since(published_)});
    published_ = count_;
    while (log_.size() > options_.limits.log) log_.pop_front();
  }
  return std::exchange(departed_, {});
}

void Roster::raise_epoch(std::uint64_t seen) {
  if (SINEW_REGISTRY_BUG(kEpochWraps)) {
    epoch_ = seen + 1;
  } else {
    epoch_ = std::max(epoch_, std::min(seen, kLastEpoch - 1) + 1);
  }
}

// --- The return ---------------------------------------------------------------------------------

void Roster::settle(Time now, Effects& out) {
  if (!window_.has_value()) return;
  // A world whose every rank is new has no part that could come back.
  const bool is_new_world = window_->is_empty() && !is_founded_ && is_complete();
  if (!is_settled_ &&
      (is_new_world || window_->is_settled(now) || SINEW_REGISTRY_BUG(kAdmitsAtOnce))) {
    is_settled_ = true;
    decide(now, out);
  }
  if (!window_->is_over(now) && !SINEW_REGISTRY_BUG(kNamedAreLost)) return;
  if (SINEW_REGISTRY_BUG(kNamedAreLost) && !is_settled_) return;
  decide(now, out);
  window_.reset();
  note({});
}

// Which of the returned members are admitted: decided first, and once more when all have had the
// time to return.
void Roster::decide(Time now, Effects& out) {
  if (window_->is_empty()) return;
  const JobInstance elected =
      window_->elect(instance_, static_cast<std::size_t>(std::count_if(
                                    members_.begin(), members_.end(),
                                    [](const auto& each) { return !each.second.has_returned; })));
  const bool is_other = instance_.has_value() && *instance_ != elected;
  instance_ = elected;
  is_founded_ = true;
  // Newcomers were admitted when no other one claimed their place.
  std::set<std::string> names;
  std::set<std::int32_t> ranks;
  std::vector<Record> in;
  std::set<Incarnation> kept;
  const auto take = [&](const WorkerInfo& worker) {
    if (names.count(worker.name) > 0 || ranks.count(worker.rank) > 0) return false;
    names.insert(worker.name);
    ranks.insert(worker.rank);
    kept.insert(worker.incarnation);
    return true;
  };
  for (const auto& [incarnation, member] : members_) {
    if (!member.has_returned && !is_other) take(member.record.worker);
  }
  const std::vector<ReturnWindow::Claim> claims = window_->ranked(elected);
  for (const ReturnWindow::Claim& claim : claims) {
    if (take(claim.record.worker)) in.push_back(claim.record);
  }
  std::map<Incarnation, Gone> losers;
  for (const auto& [incarnation, member] : members_) losers[incarnation] = Gone::kOtherJob;
  for (const Incarnation claimant : window_->claimants()) {
    const bool is_of_it = window_->claim_of(claimant).instance == elected;
    losers[claimant] = is_of_it ? Gone::kReplaced : Gone::kOtherJob;
  }
  for (const auto& [worker, why] : losers) {
    if (kept.count(worker) == 0) remove(worker, why, "", out);
  }
  for (const Record& record : in) {
    if (find(record.worker.incarnation) == nullptr) add(record, true, now, out);
  }
}

// --- Newcomers ----------------------------------------------------------------------------------

void Roster::admit(Time now, Effects& out) {
  if (!is_settled_ || waiting_.empty()) return;
  if (!is_founded_ && !is_complete() && !SINEW_REGISTRY_BUG(kWorldIncomplete)) return;
  is_founded_ = true;
  // Of those who wait in vain: who asked later does not get it before them.
  std::vector<WorkerInfo> in_vain;
  const std::map<std::uint64_t, Waiting> waiting = waiting_;
  for (const auto& [order, each] : waiting) {
    Record record = each.wanted;
    const WorkerInfo& wanted = each.wanted.worker;
    const bool is_held = holder_of(wanted) != nullptr ||
                         std::any_of(in_vain.begin(), in_vain.end(), [&](const WorkerInfo& other) {
                           return conflict(other, wanted);
                         });
    if (wanted.rank < 0 && !is_held) record.worker.rank = free_rank(wanted);
    if (is_held || record.worker.rank < 0 || members_.size() >= options_.limits.members) {
      in_vain.push_back(wanted);
      continue;
    }
    if (!instance_.has_value()) instance_ = options_.instance;
    stop_waiting(wanted.incarnation);
    add(record, false, now, out);
  }
}

// Of a fixed world that begins: as many as it has ranks, no two with one name or rank.
bool Roster::is_complete() const {
  const std::size_t size = static_cast<std::size_t>(options_.world_size);
  if (size == 0 || waiting_.size() < size) return false;
  std::set<std::string> names;
  std::set<std::int32_t> ranks;
  std::size_t free = 0;
  for (const auto& [order, waiting] : waiting_) {
    const WorkerInfo& wanted = waiting.wanted.worker;
    const bool is_free = wanted.rank < 0 || ranks.count(wanted.rank) == 0;
    if (!is_free || !names.insert(wanted.name).second) continue;
    if (wanted.rank >= 0) ranks.insert(wanted.rank);
    ++free;
  }
  return free >= size;
}

// The lowest one that no worker has, claims or asks for. In open membership rank 0 is the
// registrar's own worker's, if it is part of one.
std::int32_t Roster::free_rank(const WorkerInfo& wanted) const {
  // Rank 0 is the founder's, and of those who ask for it.
  const bool is_first = options_.world_size > 0 || (options_.own_worker.value != 0 &&
                                                    options_.own_worker == wanted.incarnation);
  const std::int32_t end = options_.world_size > 0
                               ? options_.world_size
                               : static_cast<std::int32_t>(options_.limits.members);
  std::set<std::int32_t> wanted_ranks;
  for (const auto& [since, waiting] : waiting_) {
    wanted_ranks.insert(waiting.wanted.worker.rank);
  }
  WorkerInfo with = wanted;
  with.rank = is_first ? 0 : 1;
  // There may be tens of thousands, most of them taken.
  for (auto taken = by_rank_.lower_bound(with.rank); with.rank < end; ++with.rank) {
    const bool is_taken = taken != by_rank_.end() && taken->first == with.rank;
    if (is_taken) ++taken;
    const bool is_claimed = window_.has_value() && window_->holder_of(with) != nullptr;
    if (!is_taken && !is_claimed && wanted_ranks.count(with.rank) == 0) return with.rank;
  }
  return -1;
}

// A member, or a worker that has returned or may do so.
const WorkerInfo* Roster::holder_of(const WorkerInfo& wanted) const {
  const WorkerInfo* holder = find(wanted.name);
  if (holder != nullptr && conflict(*holder, wanted)) return holder;
  const auto by_rank = by_rank_.find(wanted.rank);
  if (by_rank != by_rank_.end() && by_rank->second != wanted.incarnation)
    return find(by_rank->second);
  return window_.has_value() ? window_->holder_of(wanted) : nullptr;
}

const Record* Roster::record_of(Incarnation member) const {
  const auto found = members_.find(member);
  return found == members_.end() ? nullptr : &found->second.record;
}

void Roster::stop_waiting(Incarnation joiner) {
  const auto since = waits_since_.find(joiner);
  if (since == waits_since_.end()) return;
  waiting_.erase(since->second);
  waits_since_.erase(since);
}

std::string Roster::why_waits(const WorkerInfo& wanted) const {
  if (const WorkerInfo* holder = holder_of(wanted)) {
    return absl::StrCat(shown(*holder), " has its name or rank, and may be lost");
  }
  if (!is_settled_) return "the registrar has begun a moment ago, and hears who comes back";
  if (is_founded_) return "there is no free rank, or another worker waits for it";
  std::vector<std::string> missing;
  for (std::int32_t rank = 0; rank < options_.world_size && missing.size() < 8; ++rank) {
    const bool is_here = std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& each) {
      return each.second.wanted.worker.rank == rank;
    });
    if (!is_here) missing.push_back(std::to_string(rank));
  }
  return absl::StrCat(waiting_.size(), " of ", options_.world_size,
                      " workers have arrived; missing ranks: ", absl::StrJoin(missing, ", "));
}

}  // namespace sinew::internal::registry
