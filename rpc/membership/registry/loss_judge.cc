#include "sinew/rpc/membership/registry/loss_judge.h"

#include <iterator>

namespace sinew::internal::registry {

bool LossJudge::add(Incarnation from, Incarnation about, Time now, std::size_t most) {
  std::size_t said = 0;
  for (auto it = said_.lower_bound({from, Incarnation{}});
       it != said_.end() && it->first.first == from; ++it) {
    ++said;
  }
  if (said >= most) return false;
  said_.emplace(std::make_pair(from, about), now);
  return true;
}

void LossJudge::drop(Incarnation member) {
  for (auto it = said_.begin(); it != said_.end();) {
    const bool names_it = it->first.first == member || it->first.second == member;
    it = names_it ? said_.erase(it) : std::next(it);
  }
  before_.erase(member);
}

std::size_t LossJudge::losses_of(Incarnation member) const {
  const auto before = before_.find(member);
  std::size_t losses = before == before_.end() ? 0 : before->second;
  for (const auto& [pair, since] : said_) {
    // Its own word alone: whoever was cut off from all says so before all of them can.
    if (pair.first == member) ++losses;
  }
  return losses;
}

std::optional<LossJudge::Verdict> LossJudge::judge(
    Time now, Time look, const std::function<std::int32_t(Incarnation)>& rank_of) {
  std::optional<Verdict> verdict;
  std::pair<std::size_t, std::int32_t> worst;
  for (const auto& [pair, since] : said_) {
    const auto [a, b] = pair;
    if (!both_say(a, b) || now < since + look || now < said_.at({b, a}) + look) {
      continue;
    }
    const auto weight = std::make_pair(losses_of(a), rank_of(a));
    if (weight < std::make_pair(losses_of(b), rank_of(b))) continue;
    if (verdict.has_value() && weight <= worst) continue;
    verdict = Verdict{a, b};
    worst = weight;
  }
  if (verdict.has_value()) ++before_[verdict->stays];
  return verdict;
}

}  // namespace sinew::internal::registry
