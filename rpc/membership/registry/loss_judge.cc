#include "sinew/rpc/membership/registry/loss_judge.h"

#include <algorithm>
#include <iterator>

#include "sinew/rpc/membership/registry/registry_bugs.h"

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

void LossJudge::keep_only(const std::set<std::pair<Incarnation, Incarnation>>& words) {
  for (auto it = said_.begin(); it != said_.end();) {
    it = words.count(it->first) > 0 ? std::next(it) : said_.erase(it);
  }
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
    // Only its own reports: a member that was cut off from all reports that before all of them can.
    if (pair.first == member) ++losses;
  }
  return losses;
}

std::size_t LossJudge::words_about(Incarnation member, Time now) const {
  return static_cast<std::size_t>(std::count_if(said_.begin(), said_.end(), [&](const auto& said) {
    return said.first.second == member && now >= said.second + alone_;
  }));
}

std::optional<LossJudge::Verdict> LossJudge::judge(Incarnation a, Incarnation b, Time now,
                                                   const Members& members) const {
  const auto first = said_.find({a, b});
  const auto second = said_.find({b, a});
  if (first != said_.end() && second != said_.end()) {
    if (now < std::max(first->second, second->second) + look_) return std::nullopt;
    const bool a_goes = std::make_pair(losses_of(a), members.rank_of(a)) >
                        std::make_pair(losses_of(b), members.rank_of(b));
    return a_goes ? Verdict{a, b, true} : Verdict{b, a, true};
  }
  const auto word = first != said_.end() ? first : second;
  if (word == said_.end() || now < word->second + alone_ || SINEW_REGISTRY_BUG(kOneWordStays)) {
    return std::nullopt;
  }
  const auto [from, about] = word->first;
  const bool most_say_so = 2 * words_about(about, now) > members.count;
  return most_say_so ? Verdict{about, from, false} : Verdict{from, about, false};
}

std::optional<LossJudge::Verdict> LossJudge::judge(Time now, const Members& members) {
  std::optional<Verdict> worst;
  std::pair<std::size_t, std::int32_t> most;
  for (const auto& [pair, since] : said_) {
    const std::optional<Verdict> verdict = judge(pair.first, pair.second, now, members);
    if (!verdict.has_value()) continue;
    const auto weight = std::make_pair(losses_of(verdict->goes), members.rank_of(verdict->goes));
    if (worst.has_value() && weight <= most) continue;
    worst = verdict;
    most = weight;
  }
  if (worst.has_value() && worst->both_say_so) ++before_[worst->stays];
  return worst;
}

}  // namespace sinew::internal::registry
