#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/groups/reduce_op.h"
#include "sinew/groups/store.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/worker.h"

namespace sinew {

namespace internal {
class GroupEngine;
}  // namespace internal

/// How a process group starts.
struct GroupOptions {
  /// env:// (also what torchrun, Slurm, Open MPI and PMI set), tcp://host:port, file:///path; see
  /// docs/groups.md. A worker of this process that was started with the same place serves as
  /// `worker`. Ignored when `worker` or `store` is set.
  std::string init_method = "env://";
  /// The group meets over this worker's links: one port serves calls and groups. Its rank and the
  /// world's size are those of the worker.
  std::optional<Worker> worker;
  /// Where the group meets, instead of an init_method; needs `rank` and `world_size`.
  std::optional<Store> store;
  std::optional<int> rank;
  std::optional<int> world_size;
  /// "gloo", "nccl", "mpi", or by device: "cpu:gloo,cuda:nccl". Empty: gloo for CPU tensors, nccl
  /// for GPU tensors where Sinew was built with it.
  std::string backend;
  /// Time limit of operations that set none, and of the start.
  std::chrono::nanoseconds timeout = std::chrono::minutes(30);
  /// Groups of one job that meet at one place have different names.
  std::string name = "default";
  /// Local address where connections of the group are accepted. Empty: the one that routes to the
  /// rendezvous, loopback if it is there or is a file.
  std::string bind_address;
  /// The backends neither encrypt nor authenticate. So a group that leaves the machine, or meets
  /// over a worker with TLS, does not start unless this is set: for networks that are trusted. Not
  /// needed with a worker that has Credentials::insecure_on_any_network().
  bool allow_unencrypted = false;
};

/// What one operation does differently.
struct GroupCallOptions {
  /// Unset: the group's.
  std::optional<std::chrono::nanoseconds> timeout;
};

/// Processes that operate together on tensors: each operation but send and receive is called by all
/// of its ranks, in the same order. A handle; copies name the same group, which is destroyed with
/// the last one. Thread-safe, but a collective that is called while another thread waits in one has
/// no order that other ranks could share, and ends the group with kInvalidArgument
/// (docs/groups.md). Threads that start some by futures agree on their order themselves.
///
/// Tensors may be views of any shape, but outputs share no memory with each other or within. They
/// belong to the operation until it is done: neither read nor written meanwhile. Gradients are not
/// recorded.
///
/// All functions throw RpcError, and futures fail with one:
/// - kInvalidArgument: tensors or ranks make no sense, or the ranks do not agree about types and
///   sizes (all of them are told, and the text says which ranks differ);
/// - kUnimplemented: the backend does not have it (docs/groups.md has the table);
/// - kDeadlineExceeded: the time limit has passed (the text names the ranks that have not arrived,
///   where that can be told);
/// - kUnavailable: a member is lost;
/// - kCancelled: the group is destroyed here meanwhile.
///
/// After the last three the group has failed: each further call fails at once with
/// kFailedPrecondition. Destroy it, and make it anew under the same name.
class ProcessGroup {
 public:
  /// An invalid handle.
  ProcessGroup() = default;
  bool valid() const { return engine_ != nullptr; }

  int rank() const;
  int size() const;

  /// The name that the group was made with; groups made of it have longer ones.
  const std::string& name() const;

  // Messages between two ranks come in the order of their calls, for each tag by itself. Sizes and
  // types of both ends must be alike. Tags are 0 or more.

  /// Returns when the tensor can be changed again; the other end may not have it yet.
  void send(const at::Tensor& tensor, int to, int tag = 0,
            const GroupCallOptions& options = {}) const;
  /// Returns the rank of the sender. `from` unset: any rank.
  int recv(const at::Tensor& tensor, std::optional<int> from = std::nullopt, int tag = 0,
           const GroupCallOptions& options = {}) const;
  Future<void> isend(const at::Tensor& tensor, int to, int tag = 0,
                     const GroupCallOptions& options = {}) const;
  Future<int> irecv(const at::Tensor& tensor, std::optional<int> from = std::nullopt, int tag = 0,
                    const GroupCallOptions& options = {}) const;

  // Each collective has an `..._async` that returns at once, whatever the others do; they are done
  // in the order of their calls. Continuations of futures run on threads of the groups, where they
  // may block.

  /// Everybody gets the root's values.
  void broadcast(const at::Tensor& tensor, int root, const GroupCallOptions& options = {}) const;
  Future<void> broadcast_async(const at::Tensor& tensor, int root,
                               const GroupCallOptions& options = {}) const;

  /// Everybody gets the combination of all.
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                  const GroupCallOptions& options = {}) const;
  Future<void> all_reduce_async(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                                const GroupCallOptions& options = {}) const;

  /// The root gets the combination of all; the others' tensors stay as they are.
  void reduce(const at::Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum,
              const GroupCallOptions& options = {}) const;
  Future<void> reduce_async(const at::Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum,
                            const GroupCallOptions& options = {}) const;

  /// Rank i gets the root's inputs[i]. `inputs`: one for each rank at the root, empty elsewhere.
  void scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, int root,
               const GroupCallOptions& options = {}) const;
  Future<void> scatter_async(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                             int root, const GroupCallOptions& options = {}) const;

  /// The root gets the inputs of all ranks. `outputs`: one for each rank at the root, empty
  /// elsewhere.
  void gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, int root,
              const GroupCallOptions& options = {}) const;
  Future<void> gather_async(const std::vector<at::Tensor>& outputs, const at::Tensor& input,
                            int root, const GroupCallOptions& options = {}) const;

  /// All ranks get the inputs of all ranks, all of one size.
  void all_gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input,
                  const GroupCallOptions& options = {}) const;
  Future<void> all_gather_async(const std::vector<at::Tensor>& outputs, const at::Tensor& input,
                                const GroupCallOptions& options = {}) const;

  /// Rank i gets the combination of inputs[i] of all ranks, which may differ in size for different
  /// i.
  void reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                      ReduceOp op = ReduceOp::kSum, const GroupCallOptions& options = {}) const;
  Future<void> reduce_scatter_async(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                                    ReduceOp op = ReduceOp::kSum,
                                    const GroupCallOptions& options = {}) const;

  /// Rank i's inputs[j] goes to rank j's outputs[i]. Sizes may differ from pair to pair.
  void all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                  const GroupCallOptions& options = {}) const;
  Future<void> all_to_all_async(const std::vector<at::Tensor>& outputs,
                                const std::vector<at::Tensor>& inputs,
                                const GroupCallOptions& options = {}) const;

  /// Returns when all have called it.
  void barrier(const GroupCallOptions& options = {}) const;
  Future<void> barrier_async(const GroupCallOptions& options = {}) const;

  /// A group of some of this one's ranks, in this order. All ranks of this group call it with the
  /// same ranks and in the same order; a rank that is not among them gets an invalid handle at
  /// once. Of `options`, `backend` (empty: as this group's), `timeout` and `checks` count. Throws
  /// what init_process_group() throws.
  ProcessGroup new_group(const std::vector<int>& ranks, const GroupOptions& options = {}) const;

  /// Ends the group at this rank: what is under way fails with kCancelled, at the other ranks with
  /// kUnavailable. Blocks for a moment at most. Idempotent.
  void destroy() const;

 private:
  friend struct ProcessGroupAccess;
  explicit ProcessGroup(std::shared_ptr<internal::GroupEngine> engine)
      : engine_(std::move(engine)) {}
  const std::shared_ptr<internal::GroupEngine>& engine() const;

  std::shared_ptr<internal::GroupEngine> engine_;
};

/// Meets the other ranks, and returns when all are there and connected. Throws RpcError:
/// kInvalidArgument for options that make no sense, or when the ranks' differ; kDeadlineExceeded
/// with the ranks that have not come; kPermissionDenied when the group would be open to a network
/// without `allow_unencrypted`; kUnimplemented for backends that this build has not; kAlreadyExists
/// when the address of a tcp:// or env:// rendezvous is taken at rank 0.
ProcessGroup init_process_group(const GroupOptions& options = {});

/// For the rest of groups/.
struct ProcessGroupAccess {
  static ProcessGroup make(std::shared_ptr<internal::GroupEngine> engine) {
    return ProcessGroup(std::move(engine));
  }
  /// Throws RpcError kFailedPrecondition for an invalid handle.
  static const std::shared_ptr<internal::GroupEngine>& engine(const ProcessGroup& group) {
    return group.engine();
  }
};

}  // namespace sinew
