#include "sinew/rpc/membership/standing_poll.h"

#include <algorithm>

#include "sinew/rpc/membership/standings.h"

namespace sinew::internal {

StandingPoll::StandingPoll(const std::vector<Member>& members, const std::vector<Member>& gone) {
  for (const Member& member : members) {
    answers_[member.worker.incarnation] = {member.worker, true, false, false, std::nullopt};
  }
  for (const Member& member : gone) {
    answers_.try_emplace(member.worker.incarnation,
                         Answer{member.worker, false, false, false, std::nullopt});
  }
  missing_ = answers_.size();
}

void StandingPoll::on_answer(const WorkerInfo& worker, const absl::StatusOr<Standing>& standing) {
  const auto found = answers_.find(worker.incarnation);
  if (found == answers_.end() || found->second.has_come) return;
  Answer& answer = found->second;
  answer.has_come = true;
  answer.is_dead = says_gone(standing.status());
  if (standing.ok()) answer.standing = *standing;
  --missing_;
}

bool StandingPoll::has_silent_member() const {
  return std::any_of(answers_.begin(), answers_.end(), [](const auto& each) {
    const Answer& answer = each.second;
    return answer.is_member && !answer.is_dead && !answer.standing.has_value();
  });
}

std::optional<WorkerInfo> StandingPoll::evicted_by(const WorkerInfo& self) const {
  Standing own;
  own.members = 1;
  own.coordinator_rank = self.rank;
  own.coordinator = self.incarnation;
  for (const auto& [incarnation, answer] : answers_) {
    const std::optional<Standing>& said = answer.standing;
    if (!said.has_value() || said->of_other != Standing::OfOther::kMember) continue;
    ++own.members;
    if (answer.worker.rank >= own.coordinator_rank) continue;
    own.coordinator_rank = answer.worker.rank;
    own.coordinator = incarnation;
  }
  std::optional<WorkerInfo> evicted_by;
  Standing weightiest = own;
  for (const auto& [incarnation, answer] : answers_) {
    const std::optional<Standing>& said = answer.standing;
    // Who is no member itself has no say.
    if (!said.has_value() || said->of_other != Standing::OfOther::kEvicted || said->members == 0) {
      continue;
    }
    if (!outweighs(*said, weightiest)) continue;
    weightiest = *said;
    evicted_by = answer.worker;
  }
  return evicted_by;
}

}  // namespace sinew::internal
