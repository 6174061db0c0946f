#include "sinew/groups/internal/groups_manager.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/groups/internal/group_engine.h"
#include "sinew/groups/internal/group_runtime.h"
#include "sinew/groups/internal/layer.h"
#include "sinew/groups/internal/store_service.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/state_report.h"
#include "sinew/rpc/wire/bounded_parse.h"

namespace sinew::internal {
std::shared_ptr<Extension> make_groups(WorkerServices& services) {
  return GroupsManager::make(services);
}

std::shared_ptr<GroupsManager> GroupsManager::make(WorkerServices& services) {
  std::shared_ptr<GroupsManager> manager(new GroupsManager(services));
  services.add_control_method(
      std::string(kStoreMethod), [weak = std::weak_ptr<StoreService>(manager->store_)](
                                     const WorkerInfo& from, std::string body) {
        (void)from;
        const auto store = weak.lock();
        proto::StoreRequest request;
        const absl::Status parsed = store == nullptr ? absl::UnavailableError("the store has ended")
                                                     : parse_bounded(body, request);
        if (!parsed.ok()) return make_failed_future<std::string>(make_error(parsed));
        const Promise<std::string> promise(nullptr);
        store->serve(request, [promise](const proto::StoreReply& reply) {
          promise.try_set_value(reply.SerializeAsString());
        });
        return promise.future();
      });
  return manager;
}

std::shared_ptr<GroupsManager> GroupsManager::of(const Worker& worker) {
  const auto services = WorkerAccess::services(worker);
  if (services == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "this Worker is empty: start one with sinew::init_rpc()");
  }
  return require_layer<GroupsManager>(*services, "groups");
}

GroupsManager::GroupsManager(WorkerServices& services)
    : services_(services), store_(std::make_shared<StoreService>(GroupRuntime::get().timers())) {}

GroupsManager::~GroupsManager() { stop(); }

void GroupsManager::on_note(const WorkerInfo& from, std::string body) {
  (void)body;
  services_.log(absl::StrFormat("worker '%s' has sent a note that groups do not know", from.name));
}

// Groups watch members as users do (Worker::on_member), since they care how a member went.
void GroupsManager::on_worker_fenced(const WorkerInfo& worker) { (void)worker; }
void GroupsManager::on_worker_lost(const WorkerInfo& worker) { (void)worker; }
void GroupsManager::add_counters(Counters& counters) const { (void)counters; }

void GroupsManager::add(std::weak_ptr<GroupEngine> group) {
  MutexLock lock(mutex_);
  groups_.erase(std::remove_if(groups_.begin(), groups_.end(),
                               [](const auto& each) { return each.expired(); }),
                groups_.end());
  groups_.push_back(std::move(group));
}

void GroupsManager::report(StateReport& report) const {
  if (!report.wants("groups")) return;
  std::vector<std::weak_ptr<GroupEngine>> groups;
  {
    MutexLock lock(mutex_);
    groups = groups_;
  }
  for (const auto& each : groups) {
    if (const auto group = each.lock()) group->report(report);
  }
}

Future<std::vector<std::string>> GroupsManager::drain_async(DrainScope scope,
                                                            Clock::TimePoint deadline) {
  (void)scope;
  (void)deadline;
  return make_ready_future(std::vector<std::string>());
}

void GroupsManager::stop() {
  store_->stop(absl::UnavailableError("the store has ended with the worker that served it"));
}

}  // namespace sinew::internal
