// How a gather goes on, and what losses do to it.

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/coordinator.h"
#include "sinew/rpc/membership/gather_core.h"

namespace sinew::internal {
namespace {

// Gathers that this worker has not joined and to which one that is gone had come, and bytes of
// these: it had a few under way, most likely one.
constexpr std::size_t kMostValuesOfDeparted = 16;
constexpr std::size_t kMostBytesOfDeparted = std::size_t{4} << 20;

}  // namespace

// ---- Who is there.

bool GatherCore::leads_all(const GatherKey& key, const Slot& slot) const {
  return mode_of(key) == LossMode::kFail && slot.names.front() == self_;
}

bool GatherCore::is_gone(const GatherKey& key, const Slot& slot, std::size_t index) const {
  const std::string& name = slot.names[index];
  if (name == self_) return false;
  if (slot.gone.count(name) > 0) return true;
  if (mode_of(key) == LossMode::kFail) {
    // What a leader has answered may be on its way, whoever says that it has left: its call tells.
    return name != slot.followed && departures_.contains(slot.members[index].incarnation);
  }
  const absl::StatusOr<Member> member = directory_.find(name);
  return !member.ok() || departures_.contains(member->worker.incarnation);
}

std::string GatherCore::leader_of(const GatherKey& key, const Slot& slot) const {
  std::size_t index = 0;
  while (is_gone(key, slot, index)) ++index;
  return slot.names[index];  // this worker at the latest
}

std::vector<std::string> GatherCore::missing(const GatherKey& key, const Slot& slot) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < slot.names.size(); ++i) {
    const std::string& name = slot.names[i];
    if (slot.values.count(name) == 0 && !is_gone(key, slot, i)) names.push_back(name);
  }
  return names;
}

// kFail: somebody without whom it cannot succeed any more, as far as this worker decides.
const WorkerInfo* GatherCore::find_hopeless(const Slot& slot) const {
  // Others than the leader know of nobody's value but their own.
  const std::size_t count = slot.names.front() == self_ ? slot.members.size() : 1;
  for (std::size_t i = 0; i < std::min(count, slot.members.size()); ++i) {
    const bool has_come = slot.values.count(slot.names[i]) > 0;
    if (!has_come && departures_.contains(slot.members[i].incarnation)) return &slot.members[i];
  }
  return nullptr;
}

absl::Status GatherCore::status_without(const WorkerInfo& worker, const Slot& slot) const {
  const bool has_left = departures_.find(worker.incarnation) == Departure::kLeft;
  return absl::UnavailableError(
      absl::StrCat("worker '", worker.name, has_left ? "' has left the job" : "' is lost",
                   ", so a gather of ", shown(slot.names), " cannot succeed"));
}

absl::Status GatherCore::status_lost_during(const WorkerInfo& worker, const Slot& slot) const {
  const bool has_left = departures_.find(worker.incarnation) == Departure::kLeft;
  return absl::UnavailableError(absl::StrCat("worker '", worker.name,
                                             has_left ? "' has left the job" : "' was lost",
                                             " during a gather of ", shown(slot.names)));
}

// ---- Forward.

void GatherCore::advance(const GatherKey& key) {
  const auto found = slots_.find(key);
  if (found == slots_.end() || !found->second.own) return;
  Slot& slot = found->second;
  const std::string leader = leader_of(key, slot);
  if (leader != self_) {
    if (leader != slot.followed) follow(key, slot, leader);
  } else if (mode_of(key) == LossMode::kFail && slot.names.front() != self_) {
    lead_in_place(key, slot);
  } else {
    lead(key, slot);
  }
}

void GatherCore::lead(const GatherKey& key, Slot& slot) {
  if (const WorkerInfo* without = leads_all(key, slot) ? find_hopeless(slot) : nullptr) {
    return finish(key, status_lost_during(*without, slot));
  }
  const std::vector<std::string> others = missing(key, slot);
  if (others.empty()) {
    Values values;
    for (const std::string& name : slot.names) values.push_back(std::move(slot.values[name].bytes));
    return finish(key, std::move(values));
  }
  if (slot.names.front() == self_) return;
  // The leader before us may have answered some of the others, who will not come to us then.
  for (const std::string& name : others) {
    if (!slot.asked.insert(name).second) continue;
    call(name, "sinew.gather.result", key, slot, &GatherCore::on_result);
  }
}

// kFail: the leader is gone. If it has answered anybody, that is the outcome; who has come to us
// has not got it. Who is said to have left may still answer: its call tells.
void GatherCore::lead_in_place(const GatherKey& key, Slot& slot) {
  bool may_know = false;
  for (const std::string& name : slot.names) {
    if (slot.values.count(name) > 0 || slot.gone.count(name) > 0) continue;
    may_know = may_know || slot.without_outcome.count(name) == 0;
    if (!slot.asked.insert(name).second) continue;
    call(name, "sinew.gather.result", key, slot, &GatherCore::on_result);
  }
  if (!may_know) finish(key, status_lost_during(slot.members.front(), slot));
}

void GatherCore::follow(const GatherKey& key, Slot& slot, const std::string& leader) {
  slot.followed = leader;
  call(leader, "sinew.gather", key, slot, &GatherCore::on_answer);
}

void GatherCore::on_answer(const GatherKey& key, const std::string& leader, const Reply& reply) {
  const auto found = slots_.find(key);
  if (found == slots_.end() || !found->second.own) return;
  Slot& slot = found->second;
  const Outcome& outcome = reply.outcome;
  // Without a leader that is lost others may have agreed on less already.
  if (mode_of(key) == LossMode::kTolerate && leader != slot.followed) return;
  if (outcome.ok() && outcome->size() != slot.names.size()) {
    finish(key, absl::InternalError(absl::StrCat("the leader '", leader, "' of a gather of ",
                                                 slot.names.size(), " workers answered with ",
                                                 outcome->size(), " values")));
    return;
  }
  if (outcome.ok()) return finish(key, outcome);
  const absl::Status& status = outcome.status();
  if (reply.is_unreachable()) return on_leader_gone(key, slot, leader);
  if (absl::IsDeadlineExceeded(status) && scheduler_.now() >= slot.deadline) {
    return on_deadline(key);
  }
  if (mode_of(key) == LossMode::kFail && leader != slot.names.front()) {
    return finish(key, status_lost_during(slot.members.front(), slot));
  }
  finish(key, absl::Status(status.code(),
                           absl::StrCat("gather led by '", leader, "': ", status.message())));
}

void GatherCore::on_leader_gone(const GatherKey& key, Slot& slot, const std::string& leader) {
  slot.gone.insert(leader);
  for (const Answer& question : std::exchange(slot.questions, {})) {
    reply_with(question, absl::NotFoundError("the leader is lost here too"));
  }
  advance(key);
}

void GatherCore::on_result(const GatherKey& key, const std::string& from, const Reply& reply) {
  const auto found = slots_.find(key);
  if (found == slots_.end()) return;
  Slot& slot = found->second;
  if (reply.outcome.ok() && reply.outcome->size() == slot.names.size()) {
    return finish(key, reply.outcome);
  }
  if (mode_of(key) == LossMode::kTolerate) return;
  slot.without_outcome.insert(from);
  advance(key);
}

void GatherCore::on_deadline(const GatherKey& key) {
  const auto found = slots_.find(key);
  if (found == slots_.end() || !found->second.own) return;
  const Slot& slot = found->second;
  const std::string leader = leader_of(key, slot);
  if (mode_of(key) == LossMode::kFail && leader != slot.names.front()) {
    return finish(key, status_lost_during(slot.members.front(), slot));
  }
  std::string text = absl::StrCat("gather of ", shown(slot.names), ": ");
  if (leader == self_) {
    absl::StrAppend(&text, shown(missing(key, slot)), " did not come within ");
  } else {
    absl::StrAppend(&text, "the leader '", leader, "' did not answer within ");
  }
  finish(key, absl::DeadlineExceededError(absl::StrCat(text, seconds_text(slot.timeout))));
}

// ---- Losses.

void GatherCore::on_worker_lost(const WorkerInfo& worker, Departure how) {
  post([worker, how](GatherCore& core) {
    core.lose(worker, how);
    core.unanswered_.erase(worker.incarnation);
  });
}

void GatherCore::on_worker_gone(const WorkerInfo& worker, Departure how) {
  post([worker, how](GatherCore& core) { core.lose(worker, how); });
}

void GatherCore::lose(const WorkerInfo& worker, Departure how) {
  departures_.add(worker, how);
  std::vector<GatherKey> concerned;
  for (const auto& [key, slot] : slots_) {
    const bool in_set = std::binary_search(slot.names.begin(), slot.names.end(), worker.name);
    if (in_set) concerned.push_back(key);
  }
  for (const GatherKey& key : concerned) {
    const auto found = slots_.find(key);
    if (found == slots_.end()) continue;
    Slot& slot = found->second;
    const auto is_its = [&](const Waiter& waiter) {
      return waiter.worker.incarnation == worker.incarnation;
    };
    const auto its =
        std::stable_partition(slot.waiters.begin(), slot.waiters.end(), std::not_fn(is_its));
    const bool had_come = its != slot.waiters.end();
    for (auto each = its; each != slot.waiters.end(); ++each) {
      unanswered_[worker.incarnation].push_back(std::move(each->answer));
    }
    slot.waiters.erase(its, slot.waiters.end());
    if (mode_of(key) == LossMode::kFail) {
      lose_member(key, slot, worker, how);
    } else if (slot.own) {
      slot.gone.insert(worker.name);
      advance(key);
    } else if (had_come) {
      slot.values.erase(worker.name);
      if (slot.values.empty()) slots_.erase(found);
    }
  }
  bound_values_of(worker.incarnation);
  forget_departed();
}

// Who has come has come, and the gather may be complete already where the leader has not joined in
// yet. A loss while others are awaited still fails it at once, since they will hardly come; who
// leaves by itself concerns nobody.
void GatherCore::lose_member(const GatherKey& key, Slot& slot, const WorkerInfo& worker,
                             Departure how) {
  if (!slot.own) return fail_hopeless(key);
  const auto value = slot.values.find(worker.name);
  const bool had_come = value != slot.values.end() && value->second.from == worker.incarnation;
  if (leads_all(key, slot) && had_come && how == Departure::kLost) {
    return finish(key, status_lost_during(worker, slot));
  }
  advance(key);
}

// kFail, not joined: nobody need wait for this worker to find that out.
void GatherCore::fail_hopeless(const GatherKey& key) {
  const auto found = slots_.find(key);
  if (found == slots_.end() || found->second.own || !leads_all(key, found->second)) return;
  Slot& slot = found->second;
  if (slot.members.empty()) {
    absl::StatusOr<std::vector<WorkerInfo>> members = find_members(slot.names, look_up(slot.names));
    if (!members.ok() || fingerprint(*members) != key.epoch()) return;
    slot.members = *std::move(members);
  }
  // This worker itself has not come yet, and is not gone.
  const WorkerInfo* hopeless = find_hopeless(slot);
  if (hopeless == nullptr) return;
  const absl::Status failed = status_without(*hopeless, slot);
  for (const Waiter& waiter : std::exchange(slot.waiters, {})) reply_with(waiter.answer, failed);
  slots_.erase(found);
}

Future<void> GatherCore::end(const absl::Status& reason) {
  const Promise<void> ended(scheduler_.executor());
  post([reason, ended](GatherCore& core) {
    std::vector<GatherKey> keys;
    for (const auto& [key, slot] : core.slots_) {
      if (slot.own) keys.push_back(key);
    }
    for (const GatherKey& key : keys) core.finish(key, reason);
    ended.set_value();
  });
  return ended.future();
}

void GatherCore::bound_values_of(Incarnation departed) {
  std::size_t count = 0;
  std::size_t bytes = 0;
  for (auto each = slots_.begin(); each != slots_.end();) {
    auto& values = each->second.values;
    const auto its = std::find_if(values.begin(), values.end(),
                                  [&](const auto& value) { return value.second.from == departed; });
    if (each->second.own || its == values.end()) {
      ++each;
      continue;
    }
    ++count;
    bytes += its->second.bytes.size();
    if (count > kMostValuesOfDeparted || bytes > kMostBytesOfDeparted) values.erase(its);
    each = values.empty() ? slots_.erase(each) : std::next(each);
  }
}

// Whom no list names any more, and no gather that is under way here.
void GatherCore::forget_departed() {
  std::set<Incarnation> needed;
  for (const Member& member : directory_.members()) needed.insert(member.worker.incarnation);
  for (const auto& [key, slot] : slots_) {
    if (!slot.own) continue;
    for (const WorkerInfo& member : slot.members) needed.insert(member.incarnation);
  }
  for (const Incarnation forgotten : departures_.forget(needed)) {
    histories_.on_lost(forgotten);
    unanswered_.erase(forgotten);
    for (auto each = slots_.begin(); each != slots_.end();) {
      const Slot& slot = each->second;
      const bool is_its = std::any_of(
          slot.values.begin(), slot.values.end(),
          [&](const auto& value) { return !slot.own && value.second.from == forgotten; });
      if (!is_its) {
        ++each;
        continue;
      }
      for (const Waiter& waiter : slot.waiters) {
        reply_with(waiter.answer, absl::UnavailableError("a worker that had come left long ago"));
      }
      each = slots_.erase(each);
    }
  }
}

void GatherCore::finish(const GatherKey& key, const Outcome& outcome) {
  const auto found = slots_.find(key);
  const Slot slot = std::move(found->second);
  slots_.erase(found);
  if (slot.timer != 0) scheduler_.cancel(slot.timer);
  // Who has lost its leader may ask for it again; those whom the leader itself has answered ask
  // nobody, nor is there anybody else in a set of two. Who comes late asks why it has failed.
  const bool may_be_asked_for = mode_of(key) == LossMode::kTolerate || !outcome.ok() ||
                                (slot.names.front() != self_ && slot.names.size() > 2);
  if (may_be_asked_for) histories_.add_end(key, outcome);
  for (const Waiter& waiter : slot.waiters) reply_with(waiter.answer, outcome);
  for (const Answer& question : slot.questions) {
    reply_with(question, outcome.ok() ? outcome : absl::NotFoundError("it has failed here"));
  }
  if (outcome.ok()) {
    slot.own->try_set_value(*outcome);
  } else {
    slot.own->try_set_error(make_error(outcome.status()));
  }
}

}  // namespace sinew::internal
