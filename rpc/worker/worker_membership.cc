// The part of WorkerCore that ties its membership to the rest: who comes and goes, and its own
// eviction.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/flight_recorder.h"
#include "sinew/rpc/device/layer/device_check.h"
#include "sinew/rpc/device/layer/device_layer.h"
#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/worker/rejoiner.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/rpc/worker/worker_links.h"

namespace sinew::internal {

MembershipOptions WorkerCore::membership_options(Rendezvous rendezvous) {
  MembershipOptions membership;
  membership.self = {self_, address_, options_.methods.digest(), devices_->usable(),
                     devices_->has_plane()};
  membership.job = options_.job;
  membership.rendezvous = std::move(rendezvous);
  membership.timeout = options_.join_timeout;
  membership.on_change = [this](const std::vector<Member>& joined,
                                const std::vector<Departed>& gone) {
    on_members_changed(joined, gone);
  };
  membership.on_removed = [this](const absl::Status& reason) { on_evicted(reason); };
  membership.on_warning = [this](const std::string& warning) { log(warning); };
  return membership;
}

void WorkerCore::on_members_changed(const std::vector<Member>& joined,
                                    const std::vector<Departed>& gone) {
  for (const Member& member : joined) {  // Calls to it will say the same.
    const absl::Status fits = check_device_map(options_, member);
    if (!fits.ok() && world_size_ == 0) log(std::string(fits.message()));
  }
  // First, since the new ones may have their names.
  for (const Departed& each : gone) {
    FlightRecorder::of_process().add("member gone", each.worker.name);
    links_->off_the_list(each.worker, absl::UnavailableError(each.reason), each.why);
  }
  for (const Member& member : joined) {
    FlightRecorder::of_process().add("member joined", member.worker.name);
    member_events_.joined(member.worker);
  }
  links_->on_joined(joined);
  keep_leases();
}

// Not only those that live: workers learn of a loss at different times, and one that has returned
// knows nothing of earlier losses, but all must name the same set. A worker that has taken a place
// under another name is only in its own set, and waits until the others have gone.
std::vector<std::string> WorkerCore::names_of_world() const {
  std::vector<std::string> names = membership_->world_names();
  if (std::find(names.begin(), names.end(), self_.name) != names.end()) return names;
  const auto rank = static_cast<std::size_t>(membership_->self().rank);
  if (rank < names.size()) names.erase(names.begin() + static_cast<std::ptrdiff_t>(rank));
  names.push_back(self_.name);
  return names;
}

void WorkerCore::on_evicted(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    // It has ended its links itself, so the others are right.
    if (shutting_down_) return;
  }
  log(std::string(reason.message()));
  FlightRecorder::of_process().write_file();
  end_->set_evicted(reason);
  member_events_.evicted(membership_->self(), std::string(reason.message()));
  membership_->end_gathers(reason);
  for (const Member& member : directory_.members()) {
    links_->out_of_the_job(member.worker, reason);
  }
  rejoiner_->on_evicted(weak_from_this());
}

}  // namespace sinew::internal
