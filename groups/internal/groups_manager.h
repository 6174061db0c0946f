#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/worker.h"

namespace sinew::internal {

class GroupEngine;
class StoreService;

/// A worker's part in stores and groups: at rank 0 it serves the store of the job.
class GroupsManager final : public Extension, public std::enable_shared_from_this<GroupsManager> {
 public:
  static constexpr std::string_view kStoreMethod = "sinew.store";

  static std::shared_ptr<GroupsManager> make(WorkerServices& services);
  /// Throws RpcError kFailedPrecondition for a worker without this layer.
  static std::shared_ptr<GroupsManager> of(const Worker& worker);

  ~GroupsManager() override;

  const std::shared_ptr<StoreService>& store() const { return store_; }
  /// A group whose members are workers of this one's job.
  void add(std::weak_ptr<GroupEngine> group);

  std::string_view layer() const override { return "groups"; }
  void on_note(const WorkerInfo& from, std::string body) override;
  void on_worker_fenced(const WorkerInfo& worker) override;
  void on_worker_lost(const WorkerInfo& worker) override;
  void add_counters(Counters& counters) const override;
  void report(StateReport& report) const override;
  Future<std::vector<std::string>> drain_async(DrainScope scope,
                                               Clock::TimePoint deadline) override;
  void stop() override;

 private:
  explicit GroupsManager(WorkerServices& services);

  WorkerServices& services_;
  const std::shared_ptr<StoreService> store_;

  mutable Mutex mutex_;
  std::vector<std::weak_ptr<GroupEngine>> groups_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
