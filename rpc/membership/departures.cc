#include "sinew/rpc/membership/departures.h"

#include <algorithm>
#include <functional>
#include <iterator>

namespace sinew::internal {

void Departures::add(const WorkerInfo& worker, Departure how) {
  if (!contains(worker.incarnation)) departed_.push_back({worker, how});
}

std::optional<Departure> Departures::find(Incarnation incarnation) const {
  for (const Departed& each : departed_) {
    if (each.worker.incarnation == incarnation) return each.how;
  }
  return std::nullopt;
}

std::optional<WorkerInfo> Departures::last_of(std::string_view name) const {
  const auto found = std::find_if(departed_.rbegin(), departed_.rend(),
                                  [&](const Departed& each) { return each.worker.name == name; });
  return found == departed_.rend() ? std::nullopt : std::make_optional(found->worker);
}

std::vector<Incarnation> Departures::forget(const std::set<Incarnation>& needed) {
  const auto is_needed = [&](const Departed& each) {
    return needed.count(each.worker.incarnation) > 0;
  };
  const auto others = static_cast<std::size_t>(
      std::count_if(departed_.begin(), departed_.end(), std::not_fn(is_needed)));
  std::vector<Incarnation> forgotten;
  for (auto each = departed_.begin(); forgotten.size() + kMost < others;) {
    if (is_needed(*each)) {
      ++each;
      continue;
    }
    forgotten.push_back(each->worker.incarnation);
    each = departed_.erase(each);
  }
  return forgotten;
}

}  // namespace sinew::internal
