// What operators see of a group; the rest is in group_engine.cc.

#include "sinew/groups/internal/group_engine.h"
#include "sinew/rpc/calls/state_report.h"

namespace sinew::internal {

void GroupEngine::report(StateReport& report) const {
  proto::GroupState* const group = report.add(*report.state().mutable_groups(), "groups");
  if (group == nullptr) return;
  group->set_name(setup_.name);
  group->set_rank(setup_.rank);
  group->set_size(setup_.size);
  for (const WorkerInfo& worker : setup_.workers) write_identity(worker, *group->add_workers());
  const auto add = [&](const Operation& operation, std::uint64_t number) {
    proto::GroupOperation& told = *group->add_operations();
    told.set_what(operation.signature.text());
    told.set_number(number);
    told.set_peer(operation.peer);
    return &told;
  };
  MutexLock lock(mutex_);
  group->set_called(last_number_);
  for (const auto& [id, pending] : pending_) {
    report.set_left(*add(pending->operation, pending->number), pending->deadline);
  }
  for (const auto& [operation, number] : in_place_) add(*operation, number);
}

}  // namespace sinew::internal
