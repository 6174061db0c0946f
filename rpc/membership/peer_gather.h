#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "sinew/rpc/membership/control_plane.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/gather.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::internal {

/// Gathers that the members themselves run. The smallest name that lives leads: it collects the
/// values and answers with all of them, or with one error. Nobody ever gets a part. When the leader
/// is lost, the next one asks the others whether they have its answer already, so that all who get
/// a result get the same one. In kFail mode that answer is then the only result: without it all
/// fail.
///
/// The control plane must outlive the executor's shutdown.
class PeerGather final : public Gather {
 public:
  /// Adds the control method "sinew.gather": before the worker accepts. `self` is the name of this
  /// worker.
  PeerGather(ControlPlane& plane, Directory& directory, std::string self, Scheduler& scheduler);
  ~PeerGather() override;
  PeerGather(const PeerGather&) = delete;
  PeerGather& operator=(const PeerGather&) = delete;

  Future<std::vector<std::string>> all_gather_async(const std::vector<std::string>& names,
                                                    std::string value,
                                                    std::chrono::nanoseconds timeout,
                                                    LossMode mode) override;
  Future<void> end(const absl::Status& reason) override;
  void on_worker_lost(const WorkerInfo& worker, Departure how) override;
  void on_worker_gone(const WorkerInfo& worker, Departure how) override;

 private:
  const std::shared_ptr<class GatherCore> core_;
};

}  // namespace sinew::internal
