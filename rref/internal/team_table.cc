#include "sinew/rref/internal/team_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sinew {

std::ostream& operator<<(std::ostream& out, TeamEvent::Kind kind) {
  switch (kind) {
    case TeamEvent::Kind::kJoined:
      return out << "joined";
    case TeamEvent::Kind::kReady:
      return out << "ready";
    case TeamEvent::Kind::kLost:
      return out << "lost";
    case TeamEvent::Kind::kGaveUp:
      return out << "gave up";
  }
  return out << "?";
}

namespace internal {
namespace {

// Before attempt `next`, which is at least the second one. Members fail apart from each other, so
// nothing is drawn.
std::chrono::nanoseconds pause_before(int next, const RetryPolicy& policy) {
  const double factor = std::pow(policy.multiplier, next - 2);
  const double pause = static_cast<double>(policy.first_pause.count()) * factor;
  const auto longest = static_cast<double>(policy.longest_pause.count());
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(pause, longest)));
}

}  // namespace

void TeamTable::on_joined(const WorkerInfo& worker, Outputs& outputs) {
  const auto known = members_.find(worker.name);
  if (known != members_.end()) {
    if (known->second.worker.incarnation == worker.incarnation) return;
    on_lost(known->second.worker, "another worker has its name", outputs);
  }
  Member& member = members_[worker.name];
  member.worker = worker;
  outputs.events.push_back({TeamEvent::Kind::kJoined, worker, ""});
  make(member, outputs);
}

void TeamTable::on_lost(const WorkerInfo& worker, const std::string& reason, Outputs& outputs) {
  const auto found = members_.find(worker.name);
  if (found == members_.end() || found->second.worker.incarnation != worker.incarnation) return;
  outputs.events.push_back({TeamEvent::Kind::kLost, found->second.worker, reason});
  members_.erase(found);
}

bool TeamTable::on_made(Attempt attempt, Outputs& outputs) {
  Member* const member = find(attempt);
  if (member == nullptr) return false;
  member->phase = Phase::kReady;
  outputs.events.push_back({TeamEvent::Kind::kReady, member->worker, ""});
  return true;
}

void TeamTable::on_failed(Attempt attempt, const std::string& reason, Time now, Outputs& outputs) {
  Member* const member = find(attempt);
  if (member == nullptr) return;
  member->reason = reason;
  if (member->attempts >= policy_.max_attempts) {
    member->phase = Phase::kGaveUp;
    outputs.events.push_back({TeamEvent::Kind::kGaveUp, member->worker, reason});
    return;
  }
  member->phase = Phase::kPausing;
  member->retry_at = now + pause_before(member->attempts + 1, policy_);
}

TeamTable::Time TeamTable::next_time() const {
  Time next = Time::max();
  for (const auto& [name, member] : members_) {
    if (member.phase == Phase::kPausing) next = std::min(next, member.retry_at);
  }
  return next;
}

void TeamTable::on_time(Time now, Outputs& outputs) {
  for (auto& [name, member] : members_) {
    if (member.phase == Phase::kPausing && member.retry_at <= now) make(member, outputs);
  }
}

std::size_t TeamTable::ready() const {
  return static_cast<std::size_t>(
      std::count_if(members_.begin(), members_.end(),
                    [](const auto& entry) { return entry.second.phase == Phase::kReady; }));
}

void TeamTable::make(Member& member, Outputs& outputs) {
  member.phase = Phase::kMaking;
  member.attempt = ++last_attempt_;
  ++member.attempts;
  outputs.makes.push_back({member.attempt, member.worker});
}

TeamTable::Member* TeamTable::find(Attempt attempt) {
  for (auto& [name, member] : members_) {
    if (member.phase == Phase::kMaking && member.attempt == attempt) return &member;
  }
  return nullptr;
}

}  // namespace internal
}  // namespace sinew
