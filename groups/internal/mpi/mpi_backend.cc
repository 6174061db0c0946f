#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/groups/internal/backend.h"
#include "sinew/groups/internal/mpi/mpi_communicator.h"
#include "sinew/groups/internal/mpi/mpi_process_group.h"
#include "sinew/groups/internal/mpi/mpi_runtime.h"
#include "sinew/groups/internal/mpi/mpi_types.h"
#include "sinew/groups/internal/reduction.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/scheduler_task.h"

namespace sinew::internal {
namespace {

using SteadyClock = std::chrono::steady_clock;

class MpiBackend final : public Backend {
 public:
  explicit MpiBackend(std::shared_ptr<MpiCommunicator> communicator)
      : communicator_(std::move(communicator)),
        group_(c10::make_intrusive<MpiProcessGroup>(communicator_)) {}

  std::string_view name() const override { return "mpi"; }
  C10dBackend& c10d() override { return *group_; }

  bool can(Function) const override { return true; }
  bool reduces(at::ScalarType type, ReduceOp op) const override {
    return communicator_->runtime().types().reduction(type, c10d_op(op)).ok();
  }
  // A future does not say who has sent it.
  bool has_future(Function function) const override { return function != Function::kRecvAnySource; }
  bool is_waited_for_in_place() const override { return true; }

  void abort(const absl::Status& reason) override { communicator_->fail(reason); }

 private:
  const std::shared_ptr<MpiCommunicator> communicator_;
  const c10::intrusive_ptr<MpiProcessGroup> group_;
};

MpiRuntime& start_runtime(SteadyClock::time_point deadline) {
  // MPI alone would take such a process for a world of its own.
  const auto task = find_scheduler_task(process_environment());
  if (task.ok() && !*task && !MpiRuntime::has_begun()) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "the mpi backend takes rank and world size from MPI, which has not started this "
                   "process: start the program with mpirun -n N");
  }
  const absl::StatusOr<MpiRuntime*> runtime = MpiRuntime::start(deadline);
  if (!runtime.ok()) throw_error(runtime.status());
  return **runtime;
}

}  // namespace

MpiPlace mpi_place(std::chrono::milliseconds timeout) {
  const MpiRuntime& runtime = start_runtime(SteadyClock::now() + timeout);
  return MpiPlace{runtime.rank(), runtime.size()};
}

std::unique_ptr<Backend> make_mpi_backend(const BackendRequest& request) {
  const SteadyClock::time_point deadline = SteadyClock::now() + request.timeout;
  MpiRuntime& runtime = start_runtime(deadline);
  for (const int rank : request.job_ranks) {
    if (rank < 0 || rank >= runtime.size()) {
      throw RpcError(ErrorCode::kInvalidArgument,
                     absl::StrCat("rank ", rank, " of the job is none of the ", runtime.size(),
                                  " processes that MPI has started"));
    }
  }
  const int job_rank = request.job_ranks.at(static_cast<std::size_t>(request.rank));
  if (job_rank != runtime.rank()) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrCat("this process is rank ", job_rank, " of the job, but rank ",
                                runtime.rank(), " for MPI: leave rank and world size to MPI"));
  }
  const absl::StatusOr<std::shared_ptr<MpiCommunicator>> communicator =
      MpiCommunicator::create(runtime, request.job_ranks, request.group, deadline);
  if (!communicator.ok()) throw_error(communicator.status());
  if ((*communicator)->reach() == MpiCommunicator::Reach::kSeveralHosts &&
      !request.allow_unencrypted) {
    throw RpcError(
        ErrorCode::kPermissionDenied,
        absl::StrCat("the group '", request.group,
                     "' has members on several hosts, and MPI neither encrypts nor "
                     "authenticates: set GroupOptions::allow_unencrypted if the network is "
                     "trusted"));
  }
  return std::make_unique<MpiBackend>(*communicator);
}

}  // namespace sinew::internal
