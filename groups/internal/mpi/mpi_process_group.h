#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sinew/groups/internal/c10d_types.h"
#include "sinew/groups/internal/mpi/mpi_communicator.h"
#include "sinew/groups/internal/mpi/mpi_operation.h"
#include "sinew/groups/internal/mpi/mpi_types.h"
#include "torch/csrc/distributed/c10d/Types.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace sinew::internal {

/// c10d's functions over MPI, for contiguous CPU tensors: each is one non-blocking function of MPI,
/// started by the thread that calls. Time limits are those of its user, who ends it by
/// MpiCommunicator::fail(). Thread-safe; threads that call collectives at once must agree with the
/// other ranks on their order themselves.
///
/// What is wrong with the arguments throws RpcError kInvalidArgument, what MPI cannot combine
/// kUnimplemented, a group that has failed why it did.
class MpiProcessGroup final : public C10dBackend {
 public:
  explicit MpiProcessGroup(std::shared_ptr<MpiCommunicator> communicator);

  const std::string getBackendName() const override { return "mpi"; }

  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  /// Tensors may have different sizes, if those of both ends are the same.
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  /// Tags are at least 0.
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

 private:
  MpiOperation operation(const char* name, Tensors tensors) const;
  /// `start_mpi(communicator, request)` calls a function of MPI and returns what that returned.
  template <class StartMpi>
  WorkPtr start(c10d::OpType type, MpiOperation operation, Tensors outputs,
                StartMpi&& start_mpi) const;

  int require_rank(const char* name, std::int64_t rank) const;
  int require_tag(const char* name, int tag) const;
  MpiReduction reduction(const at::Tensor& tensor, const c10d::ReduceOp& op) const;

  WorkPtr gather_to_all(const at::Tensor& output, const at::Tensor& input, MpiOperation gathering,
                        Tensors outputs) const;
  WorkPtr scatter_sums(const at::Tensor& output, const at::Tensor& input,
                       const std::vector<std::int64_t>& counts,
                       const c10d::ReduceScatterOptions& options) const;
  WorkPtr exchange(const at::Tensor& output, const at::Tensor& input,
                   const std::vector<std::int64_t>& received, const std::vector<std::int64_t>& sent,
                   MpiOperation exchanging, Tensors outputs) const;
  WorkPtr receive(c10d::OpType op, Tensors& tensors, int from, int tag) const;

  const std::shared_ptr<MpiCommunicator> communicator_;
};

}  // namespace sinew::internal
