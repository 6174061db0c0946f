#include "sinew/rpc/membership/loss_reports.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace sinew::internal {

void LossReports::keep_only(const std::vector<Member>& members) {
  const auto is_there = [&](Incarnation incarnation) {
    return std::any_of(members.begin(), members.end(), [&](const Member& member) {
      return member.worker.incarnation == incarnation;
    });
  };
  for (auto each = reports_.begin(); each != reports_.end();) {
    each = is_there(each->first) && is_there(each->second) ? std::next(each) : reports_.erase(each);
  }
}

std::optional<WorkerInfo> LossReports::next_to_go(const std::vector<Member>& members) const {
  std::optional<WorkerInfo> worst;
  std::ptrdiff_t most = 0;
  // Sorted by rank.
  for (const Member& member : members) {
    const Incarnation one = member.worker.incarnation;
    const auto count = std::count_if(members.begin(), members.end(), [&](const Member& other) {
      return has(one, other.worker.incarnation) && has(other.worker.incarnation, one);
    });
    if (count == 0 || count < most) continue;
    most = count;
    worst = member.worker;
  }
  return worst;
}

}  // namespace sinew::internal
