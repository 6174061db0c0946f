#include "sinew/rpc/membership/registry/return_window.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "sinew/rpc/membership/registry/registry_bugs.h"

namespace sinew::internal::registry {

bool ReturnWindow::add(const Return& from) {
  const WorkerInfo& self = from.self.worker;
  if (has_come(self.incarnation)) return true;
  if (claims_.size() >= options_.limits.members) return false;
  claims_[self.incarnation] = {from.self, from.instance, from.joined, 0};
  // Each name once: a list that repeats one is no second voice.
  const absl::flat_hash_set<WorkerInfo> known(from.known.begin(), from.known.end());
  for (const WorkerInfo& worker : known) {
    if (worker.incarnation == self.incarnation) continue;
    // A registrar in the place of a worker that was registrar proves that the old one has ended.
    if (worker.incarnation == from.version.registrar) continue;
    const auto named = named_.find(worker);
    if (named != named_.end()) {
      ++named->second;
    } else if (named_.size() < options_.limits.named) {
      named_[worker] = 1;
    }
  }
  return true;
}

void ReturnWindow::drop(Incarnation member) {
  claims_.erase(member);
  gone_.insert(member);
}

const Record* ReturnWindow::find(Incarnation member) const {
  const auto claim = claims_.find(member);
  return claim == claims_.end() ? nullptr : &claim->second.record;
}

std::vector<Incarnation> ReturnWindow::claimants() const {
  std::vector<Incarnation> claimants;
  for (const auto& [incarnation, claim] : claims_) claimants.push_back(incarnation);
  return claimants;
}

bool ReturnWindow::is_settled(Time now) const {
  if (is_over(now)) return true;
  // Before that the first who comes, alone, would have the word.
  if (now < begin_ + options_.settle) return false;
  const bool all_back = std::none_of(named_.begin(), named_.end(),
                                     [this](const auto& each) { return is_awaited(each.first); });
  return all_back || std::none_of(claims_.begin(), claims_.end(),
                                  [this](const auto& each) { return is_contested(each.second); });
}

bool ReturnWindow::is_contested(const Claim& claim) const {
  const WorkerInfo& worker = claim.record.worker;
  const bool by_name = holder_of(worker) != nullptr;
  return by_name || std::any_of(claims_.begin(), claims_.end(), [&](const auto& each) {
           return each.second.instance != claim.instance;
         });
}

const WorkerInfo* ReturnWindow::holder_of(const WorkerInfo& wanted) const {
  for (const auto& [incarnation, claim] : claims_) {
    if (conflict(wanted, claim.record.worker)) return &claim.record.worker;
  }
  for (const auto& [worker, voices] : named_) {
    if (is_awaited(worker) && conflict(wanted, worker)) return &worker;
  }
  return nullptr;
}

JobInstance ReturnWindow::elect(const std::optional<JobInstance>& current, std::size_t here) const {
  std::map<JobInstance, std::size_t> voices;
  if (current.has_value()) voices[*current] = here;
  for (const auto& [incarnation, claim] : claims_) ++voices[claim.instance];
  const auto rank = [&](const auto& each) {
    return std::make_tuple(each.second, current == each.first, each.first);
  };
  const auto best =
      std::max_element(voices.begin(), voices.end(),
                       [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return best == voices.end() ? options_.instance : best->first;
}

std::vector<ReturnWindow::Claim> ReturnWindow::ranked(const JobInstance& instance) const {
  std::vector<Claim> claims;
  for (const auto& [incarnation, claim] : claims_) {
    if (claim.instance != instance) continue;
    claims.push_back(claim);
    const auto named = named_.find(claim.record.worker);
    claims.back().voices = 1 + (named == named_.end() ? 0 : named->second);
  }
  std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) {
    const auto rank = [](const Claim& claim) {
      const int voices = SINEW_REGISTRY_BUG(kNewestListWins) ? 0 : claim.voices;
      return std::make_tuple(voices, claim.joined.epoch, claim.joined.count,
                             claim.record.worker.incarnation);
    };
    return rank(b) < rank(a);
  });
  return claims;
}

}  // namespace sinew::internal::registry
