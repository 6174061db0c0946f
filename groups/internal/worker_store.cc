#include "sinew/groups/internal/worker_store.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/groups/internal/groups_manager.h"
#include "sinew/groups/internal/store_service.h"
#include "sinew/groups/internal/store_table.h"
#include "sinew/groups/internal/store_timeout.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/wire/bounded_parse.h"

namespace sinew::internal {
namespace {

// The server gives up first, and says which keys are missing.
constexpr std::chrono::milliseconds kReplyTime{2000};

class WorkerStore final : public StoreBackend {
 public:
  WorkerStore(std::weak_ptr<WorkerServices> services, WorkerInfo server)
      : services_(std::move(services)), server_(std::move(server)) {}

  absl::StatusOr<proto::StoreReply> call(proto::StoreRequest request,
                                         Clock::TimePoint deadline) override {
    const auto services = services_.lock();
    if (services == nullptr || !services->is_running()) {
      return absl::FailedPreconditionError(
          "the store cannot be reached: this process's worker was shut down");
    }
    request.set_timeout_ms(milliseconds_until(deadline));
    const auto timeout = std::chrono::milliseconds(request.timeout_ms()) + kReplyTime;
    try {
      Future<std::string> answer = services->control_call(server_, GroupsManager::kStoreMethod,
                                                          request.SerializeAsString(), timeout);
      proto::StoreReply reply;
      const absl::Status parsed = parse_bounded(answer.wait(), reply);
      if (!parsed.ok()) return parsed;
      const absl::Status status = status_of(reply);
      if (!status.ok()) return status;
      return reply;
    } catch (const RpcError& error) {
      return absl::Status(error.code(), absl::StrCat("the store at worker '", server_.name,
                                                     "' (rank 0) failed: ", error.message()));
    }
  }

 private:
  const std::weak_ptr<WorkerServices> services_;
  const WorkerInfo server_;
};

}  // namespace

std::shared_ptr<StoreBackend> open_worker_store(const Worker& worker) {
  const std::shared_ptr<GroupsManager> manager = GroupsManager::of(worker);
  const auto services = WorkerAccess::services(worker);
  if (services->self().rank == 0) return make_local_store(manager->store());
  const absl::StatusOr<Member> server = services->directory().find(0);
  if (!server.ok()) {
    throw RpcError(ErrorCode::kUnavailable,
                   absl::StrCat("the store of a job is served by its rank 0, which is not there: ",
                                server.status().message()));
  }
  return std::make_shared<WorkerStore>(services->weak_services(), server->worker);
}

}  // namespace sinew::internal
