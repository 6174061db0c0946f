#include "sinew/tests/support/eviction.h"

#include <algorithm>

#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/tests/support/eventually.h"

namespace sinew::testing {

bool evict(const Worker& worker, const std::vector<Worker>& others) {
  const WorkerInfo victim = worker.info();
  for (const Worker& other : others) {
    // The links end when the list has changed.
    WorkerAccess::core(other)->membership().on_worker_lost(victim);
  }
  const auto knows = [&](const Worker& other) {
    const std::vector<WorkerInfo> members = other.workers();
    return std::find(members.begin(), members.end(), victim) != members.end();
  };
  if (!eventually([&] { return std::none_of(others.begin(), others.end(), knows); })) return false;
  // Sooner than it is asked.
  internal::Standing claim;
  claim.of_other = internal::Standing::OfOther::kEvicted;
  claim.members = static_cast<std::uint32_t>(others.size());
  return eventually([&] {
    const auto core = WorkerAccess::core(worker);
    if (core->evicted().ok()) core->on_asked(others.front().info(), "", claim);
    return worker.membership_state() == MembershipState::kEvicted;
  });
}

}  // namespace sinew::testing
